// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/agent/kubeletconfig"
)

func TestCheckStdin(t *testing.T) {
	manifest, err := os.ReadFile("testdata/pods.yaml")
	require.NoError(t, err)
	want, err := os.ReadFile("testdata/pods-gate-off.golden")
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitRefused, run([]string{"check", "-"}, bytes.NewReader(manifest), &stdout, &stderr))
	// The lines of the issues are broken at other words.
	require.Equal(t, strings.Fields(strings.ReplaceAll(string(want), "pods.yaml", "stdin")), strings.Fields(stdout.String()))

	stdout.Reset()
	require.Equal(t, exitRefused, run([]string{"check", "-"}, iotest.ErrReader(errors.New("is closed")), &stdout, &stderr))
	require.Contains(t, stdout.String(), "ERRORS\n  - stdin: is closed\n")
	require.Empty(t, stderr.String())
}

func TestCheckManifestForms(t *testing.T) {
	const (
		podA    = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}]}}`
		podB    = "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: [{name: main}]}\n"
		service = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}`
	)
	tests := []struct {
		name     string
		manifest string
		pods     []string
		errors   []string
		warnings []string
	}{
		{"JSON objects one after the other", podA + "\n" + service + podA, []string{"Pod a", "Pod a"}, nil, []string{"stdin: Service s: " + noTemplate}},
		{"YAML after JSON", podA + "\n" + podB, []string{"Pod a", "Pod b"}, nil, nil},
		{"a YAML document after JSON", podA + "\n---\n" + podB, []string{"Pod a", "Pod b"}, nil, nil},
		{"a comment after JSON", podA + "\n# the end\n", []string{"Pod a"}, nil, nil},
		{"no object after JSON", podA + "}", []string{"Pod a"}, []string{"stdin: document 2: yaml: did not find expected node content"}, nil},
		{"YAML that begins as JSON does", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main}]}}", []string{"Pod a"}, nil, nil},
		{"a list of one kind", `{"apiVersion": "v1", "kind": "PodList", "items": [` + podA + `, {"metadata": {"namespace": "n", "name": "b"}, "spec": {"containers": [{"name": "main"}]}}]}`, []string{"Pod a", "Pod n/b"}, nil, nil},
		{"a list of workloads", `{"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [{"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}}}]}`, []string{"Deployment a"}, nil, nil},
		{"a list without pods", `{"apiVersion": "v1", "kind": "List", "items": [` + service + `]}`, nil, nil, []string{"stdin: Service s: " + noTemplate}},
		{"a list of a kind without pods", `{"apiVersion": "v1", "kind": "ServiceList", "items": [` + service + `]}`, nil, nil, []string{"stdin: Service s: " + noTemplate}},
		{"an empty list", "{apiVersion: v1, kind: List, items: []}", nil, nil, []string{"stdin: List: items: " + noItems}},
		{"an empty list in a list", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: PodList}]}", nil, nil, []string{"stdin: PodList: items: " + noItems}},
		{"nothing", "", nil, nil, []string{"stdin: " + noPod}},
		{"a document after an end marker", podB + "...\n" + podB, []string{"Pod b", "Pod b"}, nil, nil},
		{"a comment after an end marker", podB + "... # the end\n# really\n", []string{"Pod b"}, nil, nil},
		{"JSON after an end marker", "# first\n...\r\n" + podA + podA + "\n...\n" + podB + "...\n---\n" + podB, []string{"Pod a", "Pod a", "Pod b", "Pod b"}, nil, nil},
		{"a string for a list", strings.Replace(podB, "containers:", "hostAliases: x, containers:", 1), nil, []string{"stdin: document 1: spec.hostAliases: must be a list, not a string"}, nil},
		{"a number for a name", strings.Replace(podB, "name: b", "name: 5", 1), nil, []string{"stdin: document 1: metadata.name: must be a string, not a number: quote it"}, nil},
		{"a list for a string", strings.Replace(podB, "name: b", "name: [b]", 1), nil, []string{"stdin: document 1: metadata.name: must be a string, not a list"}, nil},
		{"no object after an end marker", podB + "...\ntext\n", []string{"Pod b"}, []string{"stdin: document 2: must be an object with apiVersion and kind, as strings"}, nil},
		{"dots in a text", podB + "# ...\nstatus:\n  message: |\n    a\n    ...\n  reason: ...\n", []string{"Pod b"}, nil, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := check(checkOptions{}, []string{stdinFile}, strings.NewReader(tc.manifest))
			var pods []string
			for _, pod := range r.Pods {
				pods = append(pods, pod.Object)
			}
			require.Equal(t, tc.pods, pods)
			require.Equal(t, tc.errors, texts(r.Errors))
			require.Equal(t, tc.warnings, texts(r.Warnings))
			require.Equal(t, len(tc.errors) == 0, r.Valid)
		})
	}
}

// FuzzManifest searches for a manifest with which check panics, that has neither a report
// nor an issue, or that has an exit without a result.
func FuzzManifest(f *testing.F) {
	for _, file := range []string{"pods.yaml", "pods-malformed.yaml", "workloads.yaml"} {
		data, err := os.ReadFile("testdata/" + file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"apiVersion": "v1", "kind": "Pod"} {"apiVersion": "v1", "kind": "PodList", "items": [{}]}`))
	f.Add([]byte(`{"apiVersion": "v1", "kind": "List", "items": []}`))
	gate := kubeletconfig.NewFeatureGate()
	require.NoError(f, gate.SetFromMap(map[string]bool{"AllAlpha": true}))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &report{}
		pods, objects := r.readWorkloads([]string{stdinFile}, bytes.NewReader(data))
		for _, p := range pods {
			r.addPod(p, gate)
		}
		require.NotZero(t, len(r.Pods)+len(objects)+len(r.Errors)+len(r.Warnings))
		for _, pod := range r.Pods {
			for _, c := range pod.Containers {
				explained := map[int]bool{}
				for i, exit := range c.Exits {
					require.Equal(t, i == len(c.Exits)-1, len(exit.ExitCodes) == 0, "the others are last")
					for _, code := range exit.ExitCodes {
						require.False(t, explained[code], "exit code %d", code)
						explained[code] = true
					}
				}
				require.NotEmpty(t, c.Exits)
			}
		}
		require.NoError(t, writeTable(&bytes.Buffer{}, r))
	})
}
