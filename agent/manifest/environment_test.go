// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
	}}
	fieldRef := func(name, path string) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
	}
	optional := func(optional *bool) v1.EnvVar {
		return v1.EnvVar{Name: "KEY", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "k", Optional: optional}}}
	}
	const mustBe = "must be one of metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], metadata.annotations['KEY'], status.podIP"
	tests := []struct {
		name string
		env  []v1.EnvVar
		want []v1.EnvVar
		err  string
	}{
		{name: "none"},
		{
			name: "what stands before is expanded, what stands after is not",
			env:  []v1.EnvVar{{Name: "A", Value: "$(B)"}, {Name: "B", Value: "b"}, {Name: "C", Value: "$(A)-$(B)-$$(B)"}},
			want: []v1.EnvVar{{Name: "A", Value: "$(B)"}, {Name: "B", Value: "b"}, {Name: "C", Value: "$(B)-b-$(B)"}},
		},
		{
			name: "of a name the last value counts",
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
		{
			name: "an optional source leaves what was there",
			env:  []v1.EnvVar{{Name: "KEY", Value: "default"}, optional(ptr.To(true)), {Name: "B", Value: "$(KEY)"}},
			want: []v1.EnvVar{{Name: "KEY", Value: "default"}, {Name: "B", Value: "default"}},
		},
		{name: "a secret", env: []v1.EnvVar{optional(nil)}, err: "env KEY: only fieldRef is known as a source"},
		{name: "no optional secret", env: []v1.EnvVar{optional(ptr.To(false))}, err: "env KEY: only fieldRef is known as a source"},
		{name: "a field of the node", env: []v1.EnvVar{fieldRef("NODE", "spec.nodeName")}, err: `env NODE: fieldPath "spec.nodeName": ` + mustBe},
		{name: "all labels", env: []v1.EnvVar{fieldRef("L", "metadata.labels")}, err: `env L: fieldPath "metadata.labels": ` + mustBe},
		{name: "a key of something else", env: []v1.EnvVar{fieldRef("X", "spec.nodeSelector['x']")}, err: `env X: fieldPath "spec.nodeSelector['x']": ` + mustBe},
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
}
