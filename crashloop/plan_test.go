// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const planPod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: a}, {name: other, image: b}]}
`

// planned runs crashloop plan with a manifest on standard input.
func planned(t *testing.T, manifest string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(append([]string{"plan", "--at", "2026-01-01T12:00:00Z"}, args...), strings.NewReader(manifest), &out, &errs)
	return status, out.String(), errs.String()
}

func TestPlan(t *testing.T) {
	status, out, errs := planned(t, planPod, "--for", "1m", "--exit", "main=1@3s", "--recover", "main=20s", "-")
	assert.Equal(t, exitSucceeded, status, errs)
	assert.Empty(t, errs)
	assert.Equal(t, `Pod web in stdin: next restart at 12:00:03, in 3s
assumed: --exit other=runs
note: the plan assumes a patched kubelet: a stock one restarts later, and has no RestartPod
TIME      AFTER  CONTAINER  EVENT
12:00:00  0s     main       starts
12:00:00  0s     other      starts
12:00:03  3s     main       exits with code 1 after 3s
12:00:03  3s     main       starts, restart 1
12:00:06  6s     main       exits with code 1 after 3s
12:00:06  6s     main       waits until 12:00:16, back-off 10s
12:00:16  16s    main       starts, restart 2
12:00:19  19s    main       exits with code 1 after 3s
12:00:19  19s    main       waits until 12:00:39, back-off 20s
12:00:39  39s    main       starts, restart 3
main: 3 restarts in 1m0s, down for 50.0% of the time
`, out)
}

// An annotation ends a wait, and the curve starts over. The second one has the gate.
func TestPlanRestartAt(t *testing.T) {
	args := []string{"--for", "45s", "--exit", "main=1@3s", "-"}
	for _, at := range []string{"25s", "2026-01-01T12:00:25Z"} {
		status, out, errs := planned(t, planPod, append([]string{"--restart-at", at}, args...)...)
		assert.Equal(t, exitSucceeded, status, errs)
		assert.Contains(t, out, `
12:00:19  19s    main       exits with code 1 after 3s
12:00:19  19s    main       waits until 12:00:25, back-off 20s
12:00:25  25s    main       starts, restart 3
12:00:28  28s    main       exits with code 1 after 3s
12:00:28  28s    main       waits until 12:00:38, back-off 10s
12:00:38  38s    main       starts, restart 4
`)
	}
	annotated := strings.Replace(planPod, "{name: web}", `{name: web, annotations: {restart-at.kubelet-backoff.github.io/main: "2026-01-01T12:00:25Z"}}`, 1)
	_, out, _ := planned(t, annotated, append([]string{"--feature-gates", "KubeletRestartAtAnnotation=true"}, args...)...)
	assert.Contains(t, out, "main       waits until 12:00:25, back-off 20s\n")
	_, out, _ = planned(t, annotated, args...)
	assert.Contains(t, out, "main       waits until 12:00:39, back-off 20s\n")
	rule := `{name: main, image: a, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [42]}}]}`
	_, out, _ = planned(t, strings.Replace(planPod, "{name: main, image: a}", rule, 1), "--feature-gates", "RestartPodOnContainerExits=true", "--restart-at", "5s", "--for", "30s", "--exit", "main=42@1s", "--exit", "other=0@1s", "-")
	assert.Contains(t, out, "waits until 12:00:05, back-off 10s\n")
}

// A pod ends instead of a restart that is one too many.
func TestPlanMaxRestarts(t *testing.T) {
	annotated := strings.Replace(planPod, "{name: web}", `{name: web, annotations: {kubelet-backoff.github.io/max-restarts: "2"}}`, 1)
	args := []string{"--for", "1m", "--exit", "main=1@3s", "-"}
	_, out, _ := planned(t, annotated, append([]string{"--feature-gates", "KubeletMaxRestartsAnnotation=true"}, args...)...)
	assert.Contains(t, out, `
12:00:19  19s    main       exits with code 1 after 3s
12:00:49  49s    other      exits with code 137 after 49s
12:00:49  49s               Failed: RestartLimitExceeded
main: 2 restarts`)
	for _, off := range [][]string{nil, {"--feature-gates", "KubeletMaxRestartsAnnotation=true,KubeletStrictCrashLoopBackOff=false"}} {
		_, out, errs := planned(t, annotated, append(off, args...)...)
		assert.Contains(t, out, "main: 3 restarts in 1m0s")
		assert.Equal(t, off != nil, strings.Contains(errs, "KubeletStrictCrashLoopBackOff=false is not honored: crashloop plan only has the behavior with the gate enabled"))
	}
	// The run before the present one has reset the back-off, so the next restart is the second in a row.
	status := `status: {phase: Running, containerStatuses: [{name: main, restartCount: 40, state: {running: {startedAt: "2026-01-01T11:59:59Z"}},
  lastState: {terminated: {exitCode: 1, startedAt: "2026-01-01T09:00:00Z", finishedAt: "2026-01-01T11:59:59Z"}}}]}
`
	_, out, _ = planned(t, annotated+status, append([]string{"--feature-gates", "KubeletMaxRestartsAnnotation=true"}, args...)...)
	assert.Contains(t, out, "note: the status does not say how many restarts of main were in a row: the plan counts them as in the curve\n")
	assert.Contains(t, out, "main       waits until 12:00:12, back-off 10s\n")
	assert.Contains(t, out, "main: 1 restart in")
}

// A container has the curve of its annotation, also in a status.
func TestPlanCurves(t *testing.T) {
	annotated := strings.Replace(planPod, "{name: web}", `{name: web, annotations: {restart-backoff.kubelet-backoff.github.io/main: "initial=2s,max=5s,ignore=0"}}`, 1)
	gate := []string{"--feature-gates", "KubeletRestartBackOffAnnotation=true", "--for", "30s"}
	_, out, _ := planned(t, annotated, append(gate, "--exit", "main=1@1s", "-")...)
	assert.Contains(t, out, `
12:00:01  1s     main       starts, restart 1
12:00:02  2s     main       exits with code 1 after 1s
12:00:02  2s     main       waits until 12:00:04, back-off 2s
12:00:04  4s     main       starts, restart 2
12:00:05  5s     main       exits with code 1 after 1s
12:00:05  5s     main       waits until 12:00:09, back-off 4s
12:00:09  9s     main       starts, restart 3
12:00:10  10s    main       exits with code 1 after 1s
12:00:10  10s    main       waits until 12:00:15, back-off 5s
`)
	_, out, _ = planned(t, annotated, append(gate, "--exit", "main=0@250ms", "-")...)
	assert.Contains(t, out, "main       waits until 12:00:01, back-off 800ms\n")
	assert.Contains(t, out, "main: 30 restarts in 30s")
	_, out, _ = planned(t, annotated, "--for", "30s", "--exit", "main=1@1s", "-")
	assert.Contains(t, out, "main       waits until 12:00:12, back-off 10s\n")
	status := `status: {phase: Running, containerStatuses: [{name: main, restartCount: 9, state: {waiting: {reason: CrashLoopBackOff,
  message: back-off 4s restarting failed container=main pod=web_default(x)}}, lastState: {terminated: {exitCode: 1, startedAt: "2026-01-01T11:59:58Z", finishedAt: "2026-01-01T11:59:59Z"}}}]}
`
	_, out, errs := planned(t, annotated+status, append(gate, "-")...)
	assert.Contains(t, out, "main       waits until 12:00:03, back-off 4s\n", errs)
}

// A wait that somebody has to end is not taken for one that ends.
func TestPlanMissing(t *testing.T) {
	const status = "status: {containerStatuses: [{name: main, restartCount: %d, state: {waiting: {reason: CreateContainerConfigError}}}, {name: other, state: {running: {}}}]}"
	_, out, _ := planned(t, planPod+fmt.Sprintf(status, 2), "--for", "1m", "-")
	assert.Contains(t, out, "Pod web in stdin: next restart at 12:00:00, now, if CreateContainerConfigError is resolved\n")
	assert.Contains(t, out, "note: main waits because of CreateContainerConfigError: the plan assumes that the cause is gone\n")
	assert.Contains(t, out, "12:00:00  0s     main       starts, restart 3, if CreateContainerConfigError is resolved\n")
	_, out, _ = planned(t, planPod+fmt.Sprintf(status, 0), "--for", "1m", "-")
	assert.Contains(t, out, "Pod web in stdin: no restart in 1m0s\n")
	assert.Contains(t, out, "12:00:00  0s     main       starts, if CreateContainerConfigError is resolved\n")
}

// The first line names the restart that the table has, also after the end of the plan.
func TestPlanNextRestart(t *testing.T) {
	const waits = `status: {containerStatuses: [{name: main, restartCount: 5, state: {waiting: {reason: CrashLoopBackOff, message: "back-off 5m0s restarting failed container=main pod=web_default(x)"}}, lastState: {terminated: {exitCode: 1, startedAt: "2026-01-01T11:59:00Z", finishedAt: "2026-01-01T11:59:10Z"}}}, {name: other, state: {running: {startedAt: "2026-01-01T11:00:00Z"}}}]}`
	_, out, errs := planned(t, planPod+waits, "--for", "1m", "-")
	assert.Contains(t, out, "next restart at 12:04:10, in 4m10s\n", errs)
	assert.Contains(t, out, "waits until 12:04:10, back-off 5m0s\n")
	_, out, _ = planned(t, planPod+waits, "--for", "4m10s", "-")
	assert.Contains(t, out, "next restart at 12:04:10, in 4m10s\n")
	assert.Contains(t, out, "12:04:10  4m10s  main       starts, restart 6\n")
	// The deadline ends the pod, and the wait.
	_, out, errs = planned(t, strings.Replace(planPod, "spec: {", "spec: {activeDeadlineSeconds: 90, terminationGracePeriodSeconds: 0, ", 1)+strings.Replace(waits, "{", `{startTime: "2026-01-01T11:59:00Z", `, 1), "--for", "1m", "-")
	assert.Contains(t, out, "no restart in 1m0s\n", errs)
}

// A plan says that it is for a patched kubelet if a stock one differs.
func TestPlanAssumesPatchedKubelet(t *testing.T) {
	const note = "the plan assumes a patched kubelet: a stock one restarts later, and has no RestartPod"
	_, out, _ := planned(t, planPod, "--for", "1m", "--exit", "main=1@3s", "-")
	assert.Contains(t, out, "\nnote: "+note+"\nTIME ")
	_, out, _ = planned(t, planPod, "--for", "1m", "--exit", "main=1@3s", "-o", "json", "-")
	assert.Contains(t, out, `"notes":["`+note+`"]`)
	restarts := strings.Replace(planPod, "image: a", "image: a, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [3]}}]", 1)
	_, out, errs := planned(t, restarts, "--feature-gates", "RestartPodOnContainerExits=true", "--for", "1m", "--exit", "main=3@20s,runs", "-")
	assert.Contains(t, out, note, errs)
	_, out, _ = planned(t, planPod, "--for", "1m", "--exit", "main=runs", "-")
	assert.NotContains(t, out, "note:")
}

// People read seconds and tenths of them, programs what was computed.
func TestPlanRounding(t *testing.T) {
	args := []string{"--for", "2h", "--exit", "main=1@2.96s", "-"}
	_, out, _ := planned(t, planPod, args...)
	assert.Contains(t, out, "next restart at 12:00:03, in 3s\n")
	assert.Contains(t, out, "12:00:16  15.9s       main       starts, restart 2\n")
	assert.Contains(t, out, "main: 28 restarts in 2h0m0s, down for 98.8% of the time\n")
	_, out, _ = planned(t, planPod, append([]string{"-o", "json"}, args...)...)
	assert.Contains(t, out, `{"time":"2026-01-01T12:00:02.96Z","kind":"Exit","container":"main","exitCode":1,"ranSeconds":2.96}`)
	assert.Contains(t, out, `{"name":"main","restarts":28,"ranSeconds":85.84,"downSeconds":7114.16}`)
}

// plan takes the same input as check: other kinds, several pods, a node's configuration.
func TestPlanManifests(t *testing.T) {
	const deployment = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec: {template: {spec: {containers: [{name: main, image: a}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
`
	config := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncrashLoopBackOff: {maxContainerRestartPeriod: 2s}\n"), 0o600))
	status, out, errs := planned(t, planPod+deployment, "--config", config, "--for", "48h", "--exit", "main=1@3h", "-o", "json", "-")
	assert.Equal(t, exitSucceeded, status, errs)
	decoder := json.NewDecoder(strings.NewReader(out))
	for _, object := range []string{"Pod web", "Deployment api"} {
		var p podPlan
		require.NoError(t, decoder.Decode(&p))
		assert.Equal(t, object, p.Object)
		assert.Equal(t, 16, p.Containers[0].Restarts)
	}
	assert.False(t, decoder.More())
	_, out, _ = planned(t, planPod, "--for", "48h", "--exit", "main=1@3h", "-")
	assert.Contains(t, out, "\n2026-01-01 18:00:00  6h0m0s   main       ran for more than ten minutes: the back-off starts over\n")
}

func TestPlanFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": planPod, "b.yaml": strings.ReplaceAll(planPod, "web", "api"), "c.yaml": "apiVersion: v1\nkind: Service\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	for _, dir := range []string{dir, link} {
		status, out, errs := planned(t, "", dir)
		assert.Equal(t, exitSucceeded, status)
		assert.Equal(t, "warning: "+dir+"/c.yaml: no pod and no pod template found\n", errs)
		assert.Contains(t, out, "Pod web in "+dir+"/a.yaml: ")
		assert.Contains(t, out, "Pod api in "+dir+"/b.yaml: ")
	}
	// Only -R reads folders in the folder.
	below := filepath.Join(dir, "below")
	require.NoError(t, os.Mkdir(below, 0o700))
	require.NoError(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(below, "a.yaml")))
	status, out, _ := planned(t, "", "-R", "-f", dir)
	assert.Equal(t, exitSucceeded, status)
	assert.Contains(t, out, "Pod web in "+below+"/a.yaml: ")
	_, out, _ = planned(t, "", dir)
	assert.NotContains(t, out, "Pod web")
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	status, _, errs := planned(t, "", dir)
	assert.Equal(t, exitRefused, status)
	assert.Equal(t, "error: "+dir+"/c.yaml: no pod and no pod template found\n", errs)
}

func TestPlanErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest string
		args     []string
		status   int
		want     string
	}{
		"no manifest":       {"", nil, exitUsage, "no MANIFEST: name a file"},
		"no pod":            {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", []string{"-"}, exitRefused, "stdin: no pod and no pod template found"},
		"no container":      {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", []string{"-"}, exitRefused, "spec.containers: Required value"},
		"unknown container": {planPod, []string{"--exit", "mian=1@3s", "-"}, exitRefused, `--exit: no pod has a container "mian": must be one of main, other`},
		"unknown in both":   {planPod, []string{"--exit", "mian=1@3s", "--recover", "mian=1m", "-"}, exitRefused, "main, other\nerror: --recover: no pod has a container \"mian\""},
		"life":              {planPod, []string{"--exit", "main=1", "-"}, exitUsage, `--exit main: "1" must be CODE@AFTER`},
		"name":              {planPod, []string{"--exit", "1@3s", "-"}, exitUsage, `--exit "1@3s" must be NAME=VALUE`},
		"twice":             {planPod, []string{"--exit", "main=1@3s", "--exit", "main=runs", "-"}, exitUsage, `already set for "main"`},
		"restart-at":        {planPod, []string{"--restart-at", "soon", "-"}, exitUsage, `--restart-at "soon" must be a time such as 2026-01-01T12:00:00Z, or a duration such as 5m`},
		"recover":           {planPod, []string{"--recover", "main=-1s", "-"}, exitUsage, `--recover main: "-1s" must be a duration from 0s to 8760h0m0s, such as 12m`},
		"recover never":     {planPod, []string{"--recover", "main=999999999h", "-"}, exitUsage, `--recover main: "999999999h" must be a duration from 0s`},
		"for ever":          {planPod, []string{"--for", "1000000h", "-"}, exitUsage, "--for 1000000h0m0s must be more than 0s and at most 8760h0m0s"},
		"nothing":           {planPod, []string{"--for", "0s", "-"}, exitUsage, "--for 0s must be more than 0s"},
		"time":              {planPod, []string{"--at", "noon", "-"}, exitUsage, `--at "noon" must be a time such as 2026-01-01T12:00:00Z`},
		"no time":           {planPod, []string{"--at", "0001-01-01T00:00:00Z", "-"}, exitUsage, `--at "0001-01-01T00:00:00Z" must be a time from 1971 to 9000`},
		"the end of time":   {planPod, []string{"--at", "9999-12-31T23:59:59Z", "-"}, exitUsage, `--at "9999-12-31T23:59:59Z" must be a time from 1971 to 9000`},
		"format":            {planPod, []string{"-o", "yaml", "-"}, exitUsage, `no output format "yaml"`},
		"rules": {
			strings.Replace(planPod, "{name: main, image: a}", "{name: main, image: a, restartPolicyRules: [{action: Restart}]}", 1),
			[]string{"-"}, exitRefused, "spec.containers[0]",
		},
		"status": {planPod + `status: {containerStatuses: [{name: main, restartCount: -1}]}`, []string{"-"}, exitRefused, "status.containerStatuses[0].restartCount: Invalid value: -1"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := planned(t, tc.manifest, tc.args...)
			assert.Equal(t, tc.status, status)
			assert.Empty(t, out)
			assert.Contains(t, errs, tc.want)
		})
	}
}
