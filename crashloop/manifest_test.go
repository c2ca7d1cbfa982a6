// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
)

func TestReadPods(t *testing.T) {
	const (
		pod   = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: main}]}\n"
		other = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, generateName: a-}\n"
	)
	tests := []struct {
		name     string
		files    []string
		stdin    string
		commands map[string]string
		pods     []string
		warnings []string
		errors   []string
	}{
		{name: "documents", files: []string{stdinFile}, stdin: pod + "---\n" + other, pods: []string{"stdin: Pod a: default/a", "stdin: Pod shop/a-: shop/a-GENERATED"}},
		{name: "a list", files: []string{stdinFile}, stdin: `{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}`,
			pods: []string{"stdin: Pod a: default/a", "stdin: Pod b: default/b"}},
		{name: "pods without a name", files: []string{stdinFile}, stdin: `{"apiVersion": "v1", "kind": "PodList", "items": [{}, {}]}`,
			pods: []string{"stdin: Pod: default/", "stdin: Pod: default/"}},
		{name: "nothing", files: []string{stdinFile}, warnings: []string{"stdin: " + noPod}},
		{name: "an empty list", files: []string{stdinFile}, stdin: "{apiVersion: v1, kind: List, items: []}",
			warnings: []string{"stdin: List: items: " + noItems}},
		{name: "a file without pods beside another", files: []string{"run-ignored.yaml", "missing.yaml", "kubelet.yaml"},
			pods: []string{"run-ignored.yaml: Pod ignored: default/ignored"},
			warnings: []string{
				"run-ignored.yaml: Pod ignored: spec.containers[0].comand: unknown field",
				"kubelet.yaml: KubeletConfiguration: skipped: pass it with --config",
			},
			errors: []string{"missing.yaml: no such file or directory"}},
		{name: "other kinds", files: []string{"run-other-kinds.yaml", stdinFile}, stdin: pod, pods: []string{"run-other-kinds.yaml: Deployment web: default/web", "stdin: Pod a: default/a"},
			warnings: []string{
				"run-other-kinds.yaml: Service web: skipped: neither a pod nor a known kind with a pod template",
				"run-other-kinds.yaml: Backup: skipped: neither a pod nor a known kind with a pod template",
			}},
		{name: "templates", files: []string{"workloads.yaml"},
			pods: []string{
				"workloads.yaml: PodTemplate a: default/a", "workloads.yaml: ReplicationController b: default/b", "workloads.yaml: Deployment c: default/c",
				"workloads.yaml: ReplicaSet d: default/d", "workloads.yaml: StatefulSet e: default/e-0", "workloads.yaml: DaemonSet f: default/f",
				"workloads.yaml: Job g: default/g", "workloads.yaml: CronJob h: default/h",
			},
			warnings: []string{"workloads.yaml: ReplicationController without-template: skipped: neither a pod nor a known kind with a pod template"}},
		{name: "kinds with the same name", files: []string{stdinFile}, stdin: pod + "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n",
			pods: []string{"stdin: Pod a: default/a", "stdin: Job a: default/a-job", "stdin: Deployment a: default/a-deployment"}},
		{name: "objects with a controller, as from kubectl get all", files: []string{"run-get-all.yaml"},
			pods: []string{"run-get-all.yaml: Pod shop/alone: shop/alone", "run-get-all.yaml: Pod shop/older: shop/older", "run-get-all.yaml: Deployment shop/web: shop/web"},
			warnings: []string{
				"run-get-all.yaml: Pod shop/web-5d4-x7z: metadata.ownerReferences: skipped: its controller ReplicaSet shop/web-5d4 runs instead",
				"run-get-all.yaml: ReplicaSet shop/web-5d4: metadata.ownerReferences: skipped: its controller Deployment shop/web runs instead",
			}},
		{name: "commands", files: []string{stdinFile}, stdin: pod, commands: map[string]string{"main": "exit 3", "none": "true"},
			pods: []string{"stdin: Pod a: default/a"}, errors: []string{`--command: no container is named "none"`}},
		{name: "the same name", files: []string{"run-same-name.yaml", stdinFile}, stdin: strings.ReplaceAll(pod, "name: a", "name: web"),
			pods: []string{"run-same-name.yaml: Pod web: default/web", "run-same-name.yaml: Pod shop/web: shop/web"},
			errors: []string{
				`run-same-name.yaml: Pod default/web: metadata.name: Duplicate value: "default/web": also in run-same-name.yaml`,
				`stdin: Pod web: metadata.name: Duplicate value: "default/web": also in run-same-name.yaml`,
			}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir("testdata")
			var r issues
			found, _ := r.readPods(tc.files, strings.NewReader(tc.stdin), tc.commands)
			warnings, errs := r.Warnings, r.Errors
			var pods []string
			for _, p := range found {
				require.NotEmpty(t, p.pod.UID)
				name := p.pod.Name
				if prefix := p.pod.GenerateName; prefix != "" {
					require.Greater(t, len(name), len(prefix))
					name = prefix + "GENERATED"
				}
				pods = append(pods, p.file+": "+p.object+": "+p.pod.Namespace+"/"+name)
			}
			require.Equal(t, tc.pods, pods)
			require.Equal(t, tc.warnings, texts(warnings))
			require.Equal(t, tc.errors, texts(errs))
		})
	}
}

func texts(issues []issueReport) (texts []string) {
	for _, issue := range issues {
		texts = append(texts, issue.text)
	}
	return texts
}

// TestRunManifests tests the warnings and errors of pods that can be read.
func TestRunManifests(t *testing.T) {
	tests := []struct {
		file             string
		warnings, errors []string
	}{
		{
			file:     "run-invalid.yaml",
			warnings: []string{"not honored by the process runtime: spec.containers[0].image"},
			errors: []string{
				"spec.containers[0].command: Required value: the process runtime uses no image: set a command of this machine",
				`spec.containers[0].volumeMounts[0].name: Not found: "setings"`,
				`spec.containers[1].name: Duplicate value: "web"`,
				`spec.containers[1].livenessProbe.httpGet.port: Invalid value: "http": must be a number or the name of a port of the container`,
				"spec.initContainers[0]: Forbidden: an init container may have hooks and probes only with restartPolicy: Always",
			},
		},
		{
			file:     "run-ignored.yaml",
			warnings: []string{"not honored by the process runtime: spec.containers[*].image, spec.containers[*].resources, spec.nodeName"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.file, func(t *testing.T) {
			var r issues
			pods, _ := r.readPods([]string{"testdata/" + tc.file}, nil, nil)
			require.Empty(t, r.Errors)
			require.Len(t, pods, 1)
			warnings, list := podspec.Validate(pods[0].pod, process.Support)
			var gotErrors []string
			for _, err := range list {
				gotErrors = append(gotErrors, err.Error())
			}
			require.Equal(t, tc.warnings, warnings)
			require.Equal(t, tc.errors, gotErrors)
		})
	}
}

// An invalid manifest has the same error and the same exit status in every command.
func TestInvalidManifests(t *testing.T) {
	for name, tc := range map[string]struct{ manifest, want string }{
		"name of a container": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: A B, command: [a]}]}",
			`stdin: Pod a: spec.containers[0].name: Invalid value: "A B": a lowercase RFC 1123 label must`,
		},
		"name twice": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {initContainers: [{name: b, command: [a]}], containers: [{name: b, command: [a]}]}",
			`stdin: Pod a: spec.initContainers[0].name: Duplicate value: "b"`,
		},
		"no name":      {"apiVersion: v1\nkind: Pod\nspec: {containers: [{name: b, command: [a]}]}", "stdin: Pod: metadata.name: Required value"},
		"no container": {"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}", "stdin: CronJob a: spec.jobTemplate.spec.template.spec.containers: Required value"},
		"policy": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {restartPolicy: Sometimes, containers: [{name: b, command: [a]}]}",
			`stdin: Pod a: spec.restartPolicy: Unsupported value: "Sometimes"`,
		},
		"mount": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: b, command: [a], volumeMounts: [{name: c, mountPath: /c}]}]}",
			`stdin: Pod a: spec.containers[0].volumeMounts[0].name: Not found: "c"`,
		},
		"no YAML": {"a: [", "stdin: document 1: "},
	} {
		for _, command := range []string{"check", "plan", "run"} {
			t.Run(name+"/"+command, func(t *testing.T) {
				var output bytes.Buffer
				require.Equal(t, exitRefused, run([]string{command, stdinFile}, strings.NewReader(tc.manifest), &output, &output))
				require.Contains(t, strings.Join(strings.Fields(output.String()), " "), tc.want) // check breaks long lines.
			})
		}
	}
}

func TestManifestFolders(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yml", "c.json", "README.md", "below/d.yaml", "below/below/e.yaml"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("{apiVersion: v1, kind: Pod, metadata: {name: pod-"+filepath.Base(name)+"}, spec: {restartPolicy: Never, containers: [{name: main}]}}"), 0o600))
	}
	files := func(o manifestFlags, args ...string) (names []string) {
		for _, file := range o.list(args) {
			names = append(names, strings.TrimPrefix(file, dir+"/"))
		}
		return names
	}
	require.Equal(t, []string{"a.yml", "b.yaml", "c.json"}, files(manifestFlags{files: []string{dir}}))
	require.Equal(t, []string{"a.yml", "b.yaml", "below/below/e.yaml", "below/d.yaml", "c.json"}, files(manifestFlags{recursive: true}, dir))
	require.Equal(t, []string{"-", "missing", "README.md"}, files(manifestFlags{files: []string{"-"}}, "missing", filepath.Join(dir, "README.md")))

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	require.Equal(t, []string{link + "/a.yml", link + "/b.yaml", link + "/c.json"}, files(manifestFlags{}, link))
	require.Len(t, files(manifestFlags{recursive: true}, link), 5)

	empty := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(empty, "below"), 0o700))
	for _, args := range [][]string{{"-f", empty}, {"-R", "-f", empty}, {empty}} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitRefused, run(append([]string{"run"}, args...), nil, &stdout, &stderr))
		require.Equal(t, "warning: "+empty+": "+noManifest+"\nerror: nothing to run: no manifest has a pod or a pod template\n", stderr.String())
	}

	var stdout, stderr bytes.Buffer
	require.Equal(t, exitSucceeded, run([]string{"check", "-R", "-f", dir}, nil, &stdout, &stderr), &stdout)
	require.Equal(t, 5, strings.Count(stdout.String(), "\nPod "))
}
