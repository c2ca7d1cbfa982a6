// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// hostileText tries to overwrite the line before, to add a row to a table, and to change
// the order of what follows.
const hostileText = "x\r\x1b[1A\n  forged  container  Never  any  stays terminated\t\u202e\xff\u0085"

func requireHarmless(t *testing.T, output string) {
	t.Helper()
	for line := range strings.Lines(output) {
		line = strings.TrimSuffix(line, "\n")
		require.NotContains(t, []string{"forged", "warning: forged", "error: forged"}, strings.TrimSpace(line[:min(len(line), 8)]), "a forged line: %q", output)
		for _, r := range line {
			require.False(t, unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar, "%q in %q", r, line)
		}
	}
}

func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	hostile := strings.ToValidUTF8(strings.TrimSuffix(hostileText, "\u0085"), "") // JSON and YAML allow only valid UTF-8.
	object := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": hostile, "namespace": hostile, "labels": map[string]any{hostile: hostile}},
		"spec": map[string]any{hostile: 1, "restartPolicy": "Never", "containers": []any{
			map[string]any{"name": hostile, "command": []any{hostile}, "image": hostile},
			map[string]any{"name": "main  container  Never  any  forged"},
		}},
	}
	pod, err := json.Marshal(object)
	require.NoError(t, err)
	other, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": hostile, "metadata": map[string]any{"name": hostile}})
	require.NoError(t, err)
	twice := "apiVersion: v1\nkind: Pod\n\"" + `a\r\e[1A\nforged` + "\": 1\n\"" + `a\r\e[1A\nforged` + "\": 2\n"
	file := filepath.Join(dir, strings.ReplaceAll(hostileText, "/", ""))
	require.NoError(t, os.WriteFile(file, []byte(string(pod)+"\n---\n"+string(other)+"\n---\n"+twice), 0o600))
	config := filepath.Join(dir, "config\x1b[1A\nforged")
	require.NoError(t, os.WriteFile(config, []byte(`{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", `+string(pod[1:])), 0o600))

	for _, args := range [][]string{
		{"check", file}, {"check", file + "missing"}, {"check", "--config", config}, {"check", "--config", file}, {"check", "--config-dir", dir},
		{"run", file}, {"run", file + "missing"}, {"run", "--config", config, "-"}, {"run", "-o", file, "-"}, {"run", "--root-dir", "/dev/null/" + file, "testdata/run-ignored.yaml"},
		{"status", "--metrics", file}, {"status", "--metrics", file + "missing"}, {"status", "--metrics", file + "://"},
		{"--" + hostileText}, {hostileText},
	} {
		var stdout, stderr bytes.Buffer
		run(args, strings.NewReader(""), &stdout, &stderr)
		require.NotEmpty(t, stdout.String()+stderr.String())
		requireHarmless(t, stdout.String())
		requireHarmless(t, stderr.String())
	}

	// A name with spaces is one cell.
	var stdout, stderr bytes.Buffer
	run([]string{"check", file}, nil, &stdout, &stderr)
	require.Contains(t, stdout.String(), "\n  \"main  container  Never  any  forged\"  ")
	require.Equal(t, 2, strings.Count(stdout.String(), "any        stays terminated"), "a row for each container")

	for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(data []byte, to any) error { return yaml.Unmarshal(data, to) }} {
		stdout.Reset()
		run([]string{"check", "-o", format, file}, nil, &stdout, &stderr)
		var r report
		require.NoError(t, decode(stdout.Bytes(), &r))
		require.Equal(t, "Pod "+hostile+"/"+hostile, r.Pods[0].Object, format)
		require.Equal(t, hostile, r.Pods[0].Containers[0].Name)
		require.Equal(t, "spec."+hostile, r.Warnings[0].Field)
	}
}

// slowdown and moreMemory are what the race detector costs.
var slowdown, moreMemory = time.Duration(1), int64(1)

// limited runs the command and returns its output. It fails unless the command rejects
// its input with little memory and CPU time. The time of the kernel has a limit of its own: most
// of it is for memory, and depends on the machine.
func limited(t *testing.T, stdin *os.File, args ...string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stdin = stdin
	output, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, []int{exitFailed, exitRefused}, cmd.ProcessState.ExitCode(), "%.1000s", output)
	require.Less(t, cmd.ProcessState.UserTime(), slowdown*2*time.Second, "%.1000s", output)
	require.Less(t, cmd.ProcessState.SystemTime(), slowdown*2*time.Second, "%.1000s", output)
	require.Less(t, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss, moreMemory*200<<10, "KiB")
	return string(output)
}

func TestInputLimits(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big.yaml")
	require.NoError(t, os.WriteFile(big, nil, 0o600))
	require.NoError(t, os.Truncate(big, 100_000_000))
	for _, args := range [][]string{
		{"check", "/dev/zero"}, {"check", big}, {"check", "--config", "/dev/zero"}, {"check", "--config", big}, {"check", "-"},
		{"run", "/dev/zero"}, {"run", big}, {"run", "--config", "/dev/zero", "-"}, {"run", "-"},
		{"status", "--metrics", "/dev/zero"}, {"status"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			zero, err := os.Open("/dev/zero")
			require.NoError(t, err)
			defer zero.Close()
			require.Regexp(t, "more than [14] MiB, which is the\\s+limit", limited(t, zero, args...))
		})
	}
}

func TestExpansionLimits(t *testing.T) {
	pod := func(container string, env ...string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {restartPolicy: Never, containers: [{name: main, " + container + ", env: [" + strings.Join(env, ", ") + "]}]}}"
	}
	doubling := []string{"{name: E0, value: ten-bytes.}"}
	for i := range 30 {
		doubling = append(doubling, fmt.Sprintf("{name: E%d, value: $(E%d)$(E%d)}", i+1, i, i))
	}
	large := []string{"{name: E, value: " + strings.Repeat("x", 100<<10) + "}"}
	for i := range 10_000 {
		large = append(large, fmt.Sprintf("{name: E%d, value: $(E)}", i))
	}
	for _, tc := range []struct{ name, manifest, want string }{
		{"doubling references", pod("command: ['true']", doubling...), "spec.containers[0].env: Invalid value: env E14: the value with all references expanded is more than 128 KiB"},
		{"many references", pod("command: ['true']", large[0], "{name: F, value: "+strings.Repeat("$(E)", 100_000)+"}"), "spec.containers[0].env: Invalid value: env F: the value with all references expanded is more than 128 KiB"},
		{"many variables", pod("command: ['true']", large...), "spec.containers[0].env: Invalid value: env E19: the variables up to this one are more than 2 MiB"},
		{"unclosed references", pod("command: ['true', '" + strings.Repeat("$(", 1<<19) + "']"), "spec.containers[0].command[1]: Too long: may not be more than 131072 bytes"},
		{"an argument", pod("command: ['true'], args: [a, $(E)$(E)]", large[0]), "spec.containers[0].args[1]: Too long: may not be more than 131072 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pod.yaml")
			require.NoError(t, os.WriteFile(file, []byte(tc.manifest), 0o600))
			stderr := limited(t, nil, "run", "--root-dir", filepath.Join(t.TempDir(), "root"), file)
			require.Contains(t, stderr, tc.want+"\n")
		})
	}
}

// TestManifestLimits: what is small as a file, and took a minute or gigabytes.
func TestManifestLimits(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [%s]}}"
	lists := fmt.Sprintf(pod, "{name: a}")
	for range 2200 {
		lists = "{apiVersion: v1, kind: List, items: [" + lists + "]}"
	}
	var items strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&items, "{metadata: {name: a%d}},", i)
	}
	for _, tc := range []struct{ name, manifest, want string }{
		{"lists in lists", lists, "List: items: lists nested more than 3 deep, which is the limit"},
		{"containers", fmt.Sprintf(pod, strings.Repeat("{name: a},", 60_000)), "Pod a: spec: with these 60000 containers the file has more than 1000, which is the limit"},
		{"documents", strings.Repeat("a: 1\n---\n", 400_000), "more than 1000 objects, which is the limit"},
		{"objects after end markers", strings.Repeat("{}\n...\n", 400_000), "more than 1000 objects, which is the limit"},
		{"items", "{apiVersion: v1, kind: PodList, items: [" + items.String() + "]}", "more than 1000 objects, which is the limit"},
		{"pods", strings.Repeat(fmt.Sprintf(pod, "{name: a}")+"\n---\n", 40_000), "more than 1000 objects, which is the limit"},
	} {
		for _, command := range []string{"check", "plan", "run"} {
			if command != "plan" && tc.name != "documents" {
				continue // They read manifests in the same way.
			}
			t.Run(tc.name+" "+command, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "pod.yaml")
				require.NoError(t, os.WriteFile(file, []byte(tc.manifest), 0o600))
				output := limited(t, nil, command, file)
				require.Contains(t, strings.Join(strings.Fields(output), " "), tc.want)
				require.Less(t, len(output), 1<<20)
			})
		}
	}
}

// TestPlanLimits: each pod alone has a plan.
func TestPlanLimits(t *testing.T) {
	var pods strings.Builder
	for i := range 999 {
		fmt.Fprintf(&pods, "{apiVersion: v1, kind: Pod, metadata: {name: a%d}, spec: {containers: [{name: main}]}}\n---\n", i)
	}
	file := filepath.Join(t.TempDir(), "pods.yaml")
	require.NoError(t, os.WriteFile(file, []byte(pods.String()), 0o600))
	output := limited(t, nil, "plan", "--for", "24h", "--curve", "2s", "--exit", "main=1@1s", file)
	require.Equal(t, 1, strings.Count(output, ": the plan is too long by "), "%.1000s", output)
}

// TestMetricsLimits: the parser's memory for a line grows with the labels in it.
func TestMetricsLimits(t *testing.T) {
	var labels strings.Builder
	for i := range 120 {
		fmt.Fprintf(&labels, "l%d=\"x\",", i)
	}
	line := "{" + labels.String() + "} 1\n"
	for _, tc := range []struct{ metrics, want string }{
		{strings.Repeat("kubelet_restart_backoff_keys{} 1\n", 100_000), "more than 10000 lines"},
		{strings.Repeat("other"+line, 4_000), "found no metric"},
		{"kubelet_restart_backoff_keys" + strings.Repeat("{"+labels.String(), 4_000), "cut off"},
		{"kubelet_restart_backoff_keys" + strings.Repeat("{"+labels.String(), 4_000) + "\n", "more than 1024 bytes"},
		{strings.Repeat("\n", 4<<20-1) + "x", "cut off"},
	} {
		file := filepath.Join(t.TempDir(), "metrics")
		require.NoError(t, os.WriteFile(file, []byte(tc.metrics), 0o600))
		require.Contains(t, limited(t, nil, "status", "--metrics", file), tc.want)
	}
}
