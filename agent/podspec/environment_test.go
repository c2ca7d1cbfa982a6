// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExpand(t *testing.T) {
	env := []v1.EnvVar{{Name: "A", Value: "a"}, {Name: "REF", Value: "$(A)"}, {Name: "EMPTY"}, {Name: "a.b-c", Value: "dotted"}}
	tests := []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"$(A)", "a"},
		{"x$(A)y$(A)z", "xayaz"},
		{"$(A)$(REF)", "a$(A)"},
		{"[$(EMPTY)]", "[]"},
		{"$(a.b-c)", "dotted"},
		{"$(UNKNOWN)", "$(UNKNOWN)"},
		{"$(UNKNOWN $(A))", "$(UNKNOWN $(A))"},
		{"$()", "$()"},
		{"$$(A)", "$(A)"},
		{"$$$(A)", "$a"},
		{"$$$$(A)", "$$(A)"},
		{"$$", "$"},
		{"$", "$"},
		{"$A ${A}", "$A ${A}"},
		{"$(A", "$(A"},
		{"$(A$(A", "$(A$(A"},
		{"$(", "$("},
		{"$)(A)", "$)(A)"},
		{"$\xff(A)", "$\xff(A)"},
		{"$é$(A)", "$éa"},
	}
	for _, tc := range tests {
		require.Equal(t, []string{tc.want}, Expand([]string{tc.in}, env), "%q", tc.in)
	}
}

func TestCommand(t *testing.T) {
	env := []v1.EnvVar{{Name: "PORT", Value: "80"}}
	c := &v1.Container{Command: []string{"serve", "$(PORT)"}, Args: []string{"$$(PORT)", ""}}
	require.Equal(t, []string{"serve", "80", "$(PORT)", ""}, Command(c, env))
	require.Equal(t, []string{"serve", "$(PORT)"}, c.Command, "the spec stays as it is")
	require.Empty(t, Command(&v1.Container{}, env))
}

func TestEnvironment(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web", UID: "u-1",
		Labels:      map[string]string{"app": "shop", "example.com/tier": "front"},
		Annotations: map[string]string{"Example.com/Note": "hello"},
	}, Spec: v1.PodSpec{NodeName: "node-1"}}
	fieldRef := func(name, path string) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
	}
	const mustBe = "must be one of metadata.{name,namespace,uid,labels,annotations}, metadata.labels['KEY'], metadata.annotations['KEY'], " +
		"spec.{nodeName,serviceAccountName}, status.{hostIP,hostIPs,podIP,podIPs}"
	tests := []struct {
		name string
		env  []v1.EnvVar
		want []v1.EnvVar
		err  string
	}{
		{name: "none"},
		{
			name: "references to earlier variables are expanded, to later ones not",
			env:  []v1.EnvVar{{Name: "A", Value: "$(B)"}, {Name: "B", Value: "b"}, {Name: "C", Value: "$(A)-$(B)-$$(B)"}},
			want: []v1.EnvVar{{Name: "A", Value: "$(B)"}, {Name: "B", Value: "b"}, {Name: "C", Value: "$(B)-b-$(B)"}},
		},
		{
			name: "the last value of a name counts",
			env:  []v1.EnvVar{{Name: "PATH", Value: "/a"}, {Name: "PATH", Value: "$(PATH):/b"}},
			want: []v1.EnvVar{{Name: "PATH", Value: "/a:/b"}},
		},
		{
			name: "fields",
			env: []v1.EnvVar{
				fieldRef("NAME", "metadata.name"), fieldRef("NAMESPACE", "metadata.namespace"), fieldRef("UID", "metadata.uid"),
				fieldRef("APP", "metadata.labels['app']"), fieldRef("TIER", "metadata.labels['example.com/tier']"),
				fieldRef("NOTE", "metadata.annotations['Example.com/Note']"), fieldRef("NO", "metadata.labels['no']"),
				fieldRef("IP", "status.podIP"), {Name: "URL", Value: "http://$(IP)/$(NAME)"},
			},
			want: []v1.EnvVar{
				{Name: "NAME", Value: "web"}, {Name: "NAMESPACE", Value: "ns"}, {Name: "UID", Value: "u-1"},
				{Name: "APP", Value: "shop"}, {Name: "TIER", Value: "front"}, {Name: "NOTE", Value: "hello"}, {Name: "NO"},
				{Name: "IP", Value: "127.0.0.1"}, {Name: "URL", Value: "http://127.0.0.1/web"},
			},
		},
		{name: "an unresolved source", env: []v1.EnvVar{{Name: "KEY", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "k"}}}},
			err: "env KEY: valueFrom is not resolved"},
		{
			name: "fields of the node and whole maps",
			env:  []v1.EnvVar{fieldRef("ACCOUNT", "spec.serviceAccountName"), fieldRef("LABELS", "metadata.labels"), fieldRef("NODE", "spec.nodeName")},
			want: []v1.EnvVar{{Name: "ACCOUNT", Value: "default"}, {Name: "LABELS", Value: "app=\"shop\"\nexample.com/tier=\"front\""}, {Name: "NODE", Value: "node-1"}},
		},
		{name: "a NUL", env: []v1.EnvVar{{Name: "A", Value: "x\x00--bind"}}, err: `env "A": must not contain a NUL`},
		{name: "a NUL in a name", env: []v1.EnvVar{{Name: "A\x00", Value: "x"}}, err: `env "A\x00": must not contain a NUL`},
		{name: "a key of another field", env: []v1.EnvVar{fieldRef("X", "spec.nodeSelector['x']")}, err: `env X: fieldPath "spec.nodeSelector['x']": ` + mustBe},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			env, err := Environment(pod, &v1.Container{Env: tc.env}, "127.0.0.1")
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, env)
		})
	}
	env, err := Environment(pod, &v1.Container{Env: []v1.EnvVar{fieldRef("HOST", "status.hostIP")}}, "127.0.0.1")
	require.NoError(t, err)
	require.NotNil(t, net.ParseIP(env[0].Value), env[0].Value)
}
