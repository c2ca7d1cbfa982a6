// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/agent/manifest"
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
		pods     []string
		warnings []string
		errors   []string
	}{
		{name: "documents", files: []string{stdinFile}, stdin: pod + "---\n" + other, pods: []string{"stdin: Pod a: default/a", "stdin: Pod shop/a-: shop/a-GENERATED"}},
		{name: "a list", files: []string{stdinFile}, stdin: `{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}`,
			pods: []string{"stdin: Pod a: default/a", "stdin: Pod b: default/b"}},
		{name: "pods without a name", files: []string{stdinFile}, stdin: `{"apiVersion": "v1", "kind": "PodList", "items": [{}, {}]}`,
			pods: []string{"stdin: Pod: default/", "stdin: Pod: default/"}},
		{name: "nothing", files: []string{stdinFile}, errors: []string{"stdin: there is no pod in it"}},
		{name: "an empty list", files: []string{stdinFile}, stdin: "{apiVersion: v1, kind: List, items: []}",
			warnings: []string{"stdin: List: items: " + noItems}, errors: []string{"stdin: there is no pod in it"}},
		{name: "a file without pods beside another", files: []string{"run-ignored.yaml", "missing.yaml", "kubelet.yaml"},
			pods: []string{"run-ignored.yaml: Pod ignored: default/ignored"},
			warnings: []string{
				"run-ignored.yaml: Pod ignored: spec.containers[0].comand: unknown field",
				"kubelet.yaml: KubeletConfiguration: not looked at: --config is for it",
			},
			errors: []string{"missing.yaml: no such file or directory", "kubelet.yaml: there is no pod in it"}},
		{name: "other kinds", files: []string{"run-other-kinds.yaml", stdinFile}, stdin: pod, pods: []string{"stdin: Pod a: default/a"},
			warnings: []string{
				"run-other-kinds.yaml: Service web: not looked at: only pods are run",
				"run-other-kinds.yaml: Backup: not looked at: it has no pod template that is known here",
			},
			errors: []string{`run-other-kinds.yaml: Deployment web: kind: Unsupported value: "Deployment": supported values: "Pod"; kubectl get pods -o yaml prints the pods that a cluster makes of it`}},
		{name: "the same name", files: []string{"run-same-name.yaml", stdinFile}, stdin: strings.ReplaceAll(pod, "name: a", "name: web"),
			pods: []string{"run-same-name.yaml: Pod web: default/web", "run-same-name.yaml: Pod shop/web: shop/web"},
			errors: []string{
				`run-same-name.yaml: Pod default/web: metadata.name: Duplicate value: "default/web": there is another one in run-same-name.yaml`,
				`stdin: Pod web: metadata.name: Duplicate value: "default/web": there is another one in run-same-name.yaml`,
			}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir("testdata")
			found, warnings, errs := readPods(tc.files, strings.NewReader(tc.stdin))
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

// TestRunManifests has what is said of pods that are read without an error.
func TestRunManifests(t *testing.T) {
	tests := []struct {
		file             string
		warnings, errors []string
	}{
		{
			file:     "run-invalid.yaml",
			warnings: []string{"not honoured by the process runtime: spec.containers[0].image"},
			errors: []string{
				`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`,
				"spec.volumes[0].configMap: Forbidden: only emptyDir volumes are made",
				"spec.containers[0].command: Required value: the process runtime has no image to take it from: set it to a program of this machine",
				"spec.containers[0].env[0].valueFrom.secretKeyRef: Forbidden: there is no cluster to take it from: set value, or optional: true",
				`spec.containers[0].volumeMounts[0].name: Not found: "setings"`,
				`spec.containers[1].name: Duplicate value: "web"`,
				`spec.containers[1].livenessProbe.httpGet.port: Invalid value: "http": must be a number or the name of one of the container's ports`,
				"spec.initContainers[0].livenessProbe: Forbidden: may not be set for an init container without restartPolicy: Always",
				"spec.containers[1].lifecycle.postStart: Forbidden: no hook is run after the start: do it in the command",
			},
		},
		{
			file:     "run-ignored.yaml",
			warnings: []string{"not honoured by the process runtime: spec.containers[*].image, spec.containers[0].readinessProbe, spec.containers[*].resources, spec.nodeName"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.file, func(t *testing.T) {
			pods, _, errs := readPods([]string{"testdata/" + tc.file}, nil)
			require.Empty(t, errs)
			require.Len(t, pods, 1)
			warnings, list := manifest.Validate(pods[0].pod, allRestartGates, manifest.Process)
			var gotWarnings, gotErrors []string
			for _, w := range warnings {
				require.Empty(t, w.Field)
				gotWarnings = append(gotWarnings, w.Detail)
			}
			for _, err := range list {
				gotErrors = append(gotErrors, err.Error())
			}
			require.Equal(t, tc.warnings, gotWarnings)
			require.Equal(t, tc.errors, gotErrors)
		})
	}
}
