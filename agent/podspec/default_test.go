// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, manifest string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(manifest), pod))
	return pod
}

func TestDefault(t *testing.T) {
	pod := parse(t, `
metadata: {generateName: web-}
spec:
  volumes:
  - name: a
  initContainers:
  - name: sidecar
    image: example.com:5000/proxy
    startupProbe: {tcpSocket: {port: proxy}}
  containers:
  - name: main
    image: web:1.2
    ports: [{name: http, containerPort: 8080}]
    livenessProbe: {httpGet: {port: http}}
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 3, timeoutSeconds: 4, successThreshold: 5, failureThreshold: 6}
`)
	Default(pod)
	want := parse(t, `
metadata: {generateName: web-, namespace: default, name: NAME, uid: UID}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 30
  volumes:
  - name: a
    emptyDir: {}
  initContainers:
  - name: sidecar
    image: example.com:5000/proxy
    imagePullPolicy: Always
    startupProbe: {tcpSocket: {port: proxy}, periodSeconds: 10, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 3}
  containers:
  - name: main
    image: web:1.2
    imagePullPolicy: IfNotPresent
    ports: [{name: http, containerPort: 8080, protocol: TCP}]
    livenessProbe: {httpGet: {port: http, path: /, scheme: HTTP}, periodSeconds: 10, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 3}
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 3, timeoutSeconds: 4, successThreshold: 5, failureThreshold: 6}
`)
	require.Regexp(t, `^web-[a-z0-9]{5}$`, pod.Name)
	require.Regexp(t, `^[0-9a-f]{32}$`, pod.UID)
	want.Name, want.UID = pod.Name, pod.UID
	require.Empty(t, cmp.Diff(want, pod))

	again := pod.DeepCopy()
	Default(again)
	require.Empty(t, cmp.Diff(pod, again))
}

func TestDefaultKeepsWhatIsSet(t *testing.T) {
	pod := parse(t, `
metadata: {namespace: shop, name: web, generateName: other-, uid: 0b0b}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  volumes: [{name: a, hostPath: {path: /srv}}]
  containers:
  - name: main
    image: web
    imagePullPolicy: Never
    ports: [{containerPort: 53, protocol: UDP}]
    livenessProbe:
      {httpGet: {port: 1, path: /a, scheme: HTTPS}, periodSeconds: 3, timeoutSeconds: 4, successThreshold: 5, failureThreshold: 6}
`)
	want := pod.DeepCopy()
	Default(pod)
	require.Empty(t, cmp.Diff(want, pod))
}

func TestDefaultIdentity(t *testing.T) {
	identity := func(manifest string) string {
		pod := parse(t, manifest)
		Default(pod)
		return pod.Name + " " + string(pod.UID)
	}
	const first = `{metadata: {name: a}, spec: {containers: [{name: main, command: [a]}]}}`
	seen := map[string]string{identity(first): first}
	for _, manifest := range []string{
		`{metadata: {name: a}, spec: {containers: [{name: main, command: [b]}]}}`,
		`{metadata: {name: a, namespace: b}, spec: {containers: [{name: main, command: [a]}]}}`,
		`{metadata: {name: b}, spec: {containers: [{name: main, command: [a]}]}}`,
		`{metadata: {generateName: a}, spec: {containers: [{name: main, command: [a]}]}}`,
		`{metadata: {generateName: a}, spec: {containers: [{name: main, command: [b]}]}}`,
	} {
		id := identity(manifest)
		require.Equal(t, id, identity(manifest), "in every run the same")
		require.NotContains(t, seen, id, "%s is %s", manifest, seen[id])
		seen[id] = manifest
	}
	require.Equal(t, identity(first), identity(`{metadata: {name: a, namespace: default, labels: {b: c}}, spec: {restartPolicy: Always, containers: [{name: main, command: [a]}]}}`),
		"the defaults written out, and labels")

	long := "a123456789b123456789c123456789d123456789e123456789f123456789g123456789"
	pod := parse(t, `{metadata: {generateName: `+long+`}}`)
	Default(pod)
	require.Len(t, pod.Name, 63)
}

func TestDefaultPullPolicy(t *testing.T) {
	tests := []struct {
		image string
		want  v1.PullPolicy
	}{
		{"web", v1.PullAlways},
		{"web:latest", v1.PullAlways},
		{"web:1.2", v1.PullIfNotPresent},
		{"example.com:5000/web", v1.PullAlways},
		{"example.com:5000/web:1.2", v1.PullIfNotPresent},
		{"web@sha256:0b0b", v1.PullIfNotPresent},
		{"web:1.2@sha256:0b0b", v1.PullIfNotPresent},
		{"web:latest@sha256:0b0b", v1.PullAlways},
		{"", v1.PullIfNotPresent},
	}
	for _, tc := range tests {
		require.Equal(t, tc.want, defaultPullPolicy(tc.image), tc.image)
	}
}
