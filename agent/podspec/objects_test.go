// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testObjects() Objects {
	o := Objects{}
	o.Add(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"a": "1", "price": "$(A) 5$"}, BinaryData: map[string][]byte{"binary": {0xff, 0}}})
	o.Add(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"}, Data: map[string][]byte{"password": []byte("old"), "user": []byte("me")}, StringData: map[string]string{"password": "new"}})
	o.Add(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config", Namespace: "other"}, Data: map[string]string{"a": "another"}})
	return o
}

func resolve(t *testing.T, manifest string) (pod *v1.Pod, files Files, warnings, errs []string) {
	t.Helper()
	pod = parse(t, manifest)
	Default(pod)
	_, list := Validate(pod, processSupport)
	require.Empty(t, list)
	files, warnings, list = testObjects().Resolve(pod)
	for _, err := range list {
		errs = append(errs, err.Error())
	}
	return pod, files, warnings, errs
}

func TestResolveEnvironment(t *testing.T) {
	pod, _, warnings, errs := resolve(t, `
metadata: {name: web}
spec:
  containers:
  - name: main
    command: [serve]
    resources: {limits: {cpu: 1500m, memory: 100Mi, ephemeral-storage: 1Gi}, requests: {memory: 1500000}}
    envFrom: [{configMapRef: {name: config}, prefix: C_}, {secretRef: {name: db}}, {secretRef: {name: none}}, {configMapRef: {name: nope, optional: true}}]
    env:
    - {name: user, value: not-me}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}
    - {name: PRICE, valueFrom: {configMapKeyRef: {name: config, key: price}}}
    - {name: NONE, valueFrom: {configMapKeyRef: {name: gone, key: price}}}
    - {name: OPTIONAL, valueFrom: {configMapKeyRef: {name: config, key: gone, optional: true}}}
    - {name: ALL, value: "$(C_a) $(password) $(PRICE) $(OPTIONAL)"}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MILLICPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: REQUEST, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}
    - {name: DEFAULT, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: OTHER, valueFrom: {resourceFieldRef: {containerName: other, resource: requests.cpu}}}
  - {name: other, command: [serve]}`)
	require.Empty(t, errs)
	require.Equal(t, []string{
		"ConfigMap default/gone is not in the manifests: it counts as empty",
		"Secret default/none is not in the manifests: it counts as empty",
	}, warnings)
	env, err := Environment(pod, &pod.Spec.Containers[0], "10.0.0.1")
	require.NoError(t, err)
	require.Equal(t, []v1.EnvVar{
		{Name: "C_a", Value: "1"}, {Name: "C_price", Value: "$(A) 5$"}, {Name: "password", Value: "new"},
		{Name: "user", Value: "not-me"}, {Name: "PASSWORD", Value: "new"}, {Name: "PRICE", Value: "$(A) 5$"}, {Name: "NONE"},
		{Name: "ALL", Value: "1 new $(A) 5$ $(OPTIONAL)"}, {Name: "CPU", Value: "2"}, {Name: "MILLICPU", Value: "1500"}, {Name: "MEMORY", Value: "100"},
		{Name: "REQUEST", Value: "2"}, {Name: "DEFAULT", Value: "1500"}, {Name: "OTHER", Value: "0"},
	}, env)

	// A missing limit is that of the machine.
	pod, _, _, errs = resolve(t, `{metadata: {name: web}, spec: {containers: [{name: main, command: [serve], env: [
		{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory}}}, {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}]}}`)
	require.Empty(t, errs)
	for _, e := range pod.Spec.Containers[0].Env {
		require.Regexp(t, "^[1-9][0-9]*$", e.Value)
	}
}

func TestResolveVolumes(t *testing.T) {
	_, files, warnings, errs := resolve(t, `
metadata: {name: web, labels: {app: shop}}
spec:
  volumes:
  - {name: config, configMap: {name: config, defaultMode: 0400}}
  - {name: some, secret: {secretName: db, items: [{key: user, path: a/b/user, mode: 0600}]}}
  - {name: none, configMap: {name: gone, items: [{key: a, path: a.conf}]}}
  - {name: below, secret: {secretName: gone}}
  - {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu}}]}}
  - name: all
    projected: {sources: [{configMap: {name: config, items: [{key: a, path: a}]}}, {secret: {name: db}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}, {serviceAccountToken: {path: token}}]}
  - {name: data, persistentVolumeClaim: {claimName: data}}
  containers:
  - {name: main, command: [serve], resources: {limits: {cpu: 1}}, volumeMounts: [{name: below, mountPath: /etc/key, subPath: key}]}`)
	require.Empty(t, errs)
	require.Equal(t, []string{
		"ConfigMap default/gone is not in the manifests: it counts as empty",
		"Secret default/gone is not in the manifests: it counts as empty",
	}, warnings)
	file := func(text string, mode os.FileMode) File { return File{[]byte(text), mode} }
	require.Equal(t, Files{
		"config": {"a": file("1", 0o400), "price": file("$(A) 5$", 0o400), "binary": file("\xff\x00", 0o400)},
		"some":   {"a/b/user": file("me", 0o600)},
		"none":   {"a.conf": {Mode: 0o644}},
		"below":  {"key": {Mode: 0o644}},
		"info":   {"labels": file(`app="shop"`, 0o644), "cpu": file("1", 0o644)},
		"all":    {"a": file("1", 0o644), "password": file("new", 0o644), "user": file("me", 0o644), "name": file("web", 0o644), "token": {Mode: 0o644}},
		"data":   {},
	}, files)

	dir := t.TempDir()
	require.NoError(t, files.Write(dir))
	require.NoError(t, files.Write(dir), "over what is there")
	pod := dir
	dir = filepath.Join(dir, "volumes")
	data, err := os.ReadFile(filepath.Join(dir, "some", "a", "b", "user"))
	require.NoError(t, err)
	require.Equal(t, "me", string(data))
	info, err := os.Stat(filepath.Join(dir, "config", "a"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o400), info.Mode())
	require.DirExists(t, filepath.Join(dir, "data"))

	// A container has replaced a folder by a link.
	outside := t.TempDir()
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "some", "a")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "some", "a")))
	require.Error(t, files.Write(pod))
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestResolveErrors(t *testing.T) {
	_, _, _, errs := resolve(t, `
metadata: {name: web}
spec:
  volumes:
  - {name: config, configMap: {name: config, items: [{key: nope, path: nope}]}}
  - {name: out, secret: {secretName: db, items: [{key: user, path: ../../user}]}}
  - {name: info, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.nme}}, {path: b, resourceFieldRef: {resource: limits.cpu}}]}}
  containers:
  - name: main
    command: [serve]
    env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: nope}}}, {name: B, valueFrom: {resourceFieldRef: {resource: cpu}}}]`)
	require.Len(t, errs, 6)
	for i, want := range []string{
		`spec.containers[0].env[0].valueFrom.secretKeyRef.key: Not found: "nope"`,
		`spec.containers[0].env[1].valueFrom.resourceFieldRef: Invalid value: "cpu": must be limits.NAME or requests.NAME of a container of the pod`,
		`spec.volumes[0].key: Not found: "nope"`,
		`spec.volumes[1]: Invalid value: "../../user": must be a path in the volume`,
		`spec.volumes[2]: Invalid value: "metadata.nme": fieldPath "metadata.nme": must be one of `,
		`spec.volumes[2]: Invalid value: "limits.cpu": must be limits.NAME or requests.NAME of a container of the pod`,
	} {
		require.Contains(t, errs[i], want)
	}
}
