// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
)

// The golden file of a case is testdata/status/NAME.golden.
func TestStatus(t *testing.T) {
	tests := []struct {
		name string
		args []string
	}{
		{"node", []string{"--metrics", "node.prom"}},
		{"node-json", []string{"--metrics", "node.prom", "-o", "json"}},
		{"idle", []string{"--metrics", "idle.prom"}},
		{"idle-json", []string{"--metrics", "idle.prom", "-o", "json"}},
		{"later", []string{"--metrics", "later.prom"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir("testdata/status")
			var stdout, stderr bytes.Buffer
			require.Equal(t, exitSucceeded, run(append([]string{"status"}, tc.args...), strings.NewReader(""), &stdout, &stderr), stderr.String())
			require.Empty(t, stderr.String())
			golden := tc.name + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, stdout.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), stdout.String())
			for line := range strings.Lines(stdout.String()) {
				require.LessOrEqual(t, utf8.RuneCountInString(line), 101, "100 columns and the end of the line: %s", line)
			}
		})
	}
	t.Run("no golden file is left over", func(t *testing.T) {
		files, err := filepath.Glob("testdata/status/*.golden")
		require.NoError(t, err)
		require.Len(t, files, len(tests))
	})
}

// docs/operators.md shows the output for node.prom.
func TestStatusInDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/operators.md")
	require.NoError(t, err)
	metrics, err := os.Open("testdata/status/node.prom")
	require.NoError(t, err)
	defer metrics.Close()
	status, stdout, stderr := runStatus(metrics)
	require.Equal(t, exitSucceeded, status, stderr)
	require.Contains(t, string(doc), "| crashloop status\n"+stdout+"```\n")
}

// runStatus returns the output of status for a text on stdin.
func runStatus(stdin io.Reader, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(append([]string{"status"}, args...), stdin, &out, &errs)
	return status, out.String(), errs.String()
}

func TestStatusOfBadMetrics(t *testing.T) {
	const notText = ": expected the Prometheus text format of a kubelet's /metrics\n"
	histogram := func(lines ...string) string {
		return "# TYPE kubelet_restart_backoff_delay_seconds histogram\n" + strings.Join(lines, "\n") + "\n"
	}
	const delay = "kubelet_restart_backoff_delay_seconds"
	tests := []struct {
		name, metrics, want string
	}{
		{"empty", "", "empty: expected metrics in the Prometheus text format\n"},
		{"blank", " \n\n\t\n", "empty: expected metrics in the Prometheus text format\n"},
		{"of an unpatched kubelet", "# TYPE kubelet_running_pods gauge\nkubelet_running_pods 18\n",
			"found no metric of a patched kubelet, such as kubelet_restart_backoff_waiting_containers: these metrics come from a kubelet without the metrics patch, or from another program\n"},
		{"only comments", "# HELP kubelet_restart_backoff_keys Keys.\n# TYPE kubelet_restart_backoff_keys gauge\n",
			"found no metric of a patched kubelet, such as kubelet_restart_backoff_waiting_containers: these metrics come from a kubelet without the metrics patch, or from another program\n"},
		{"a web page", "<html>\n", "found no metric of a patched kubelet, such as kubelet_restart_backoff_waiting_containers: these metrics come from a kubelet without the metrics patch, or from another program\n"},
		{"no number", "kubelet_running_pods x\nkubelet_restart_backoff_keys x\n", `line 2: expected float as value, got "x"` + notText},
		{"nothing in braces", "# TYPE kubelet_restart_backoff_keys gauge\n{}\nkubelet_restart_backoff_keys{} 1\n", "kubelet_restart_backoff_keys: missing label type\n"},
		{"many lines", "a 1\n" + strings.Repeat("kubelet_restart_backoff_keys{type=\"pod\"} 1\n", 10001), "line 10002: more than 10000 lines of a kubelet's restarts: no kubelet has that many\n"},
		{"long line", "a 1\n# HELP kubelet_restart_backoff_keys " + strings.Repeat("x", 1<<10) + "\n", "line 2: more than 1024 bytes: no kubelet has a metric that long\n"},
		{"cut off", "kubelet_running_pods 18\nkubelet_running_po", "line 2: unexpected end: the metrics are cut off\n"},
		{"escapes in a bad line", "kubelet_restart_backoff_keys \x1b[2J\n", `line 1: expected float as value, got "\x1b[2J"` + notText},
		{"escape in an escape sequence", "kubelet_restart_backoff_keys{b=\"\\\x1b\"} 1\n", `line 1: invalid escape sequence '\\x1b'` + notText},
		{"two kubelets", "# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys{type=\"pod\"} 1\nkubelet_restart_backoff_keys{type=\"pod\"} 2\n",
			"kubelet_restart_backoff_keys[\"pod\"]: found twice: pass the metrics of one kubelet only\n"},
		{"another type", "# TYPE kubelet_restart_backoff_keys counter\nkubelet_restart_backoff_keys{type=\"pod\"} 1\n",
			"kubelet_restart_backoff_keys: has the type counter, must be a gauge\n"},
		{"without types", "kubelet_restart_backoff_waiting_containers 1\n",
			"kubelet_restart_backoff_waiting_containers: has the type untyped, must be a gauge\n"},
		{"from Prometheus", "# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys{type=\"pod\",instance=\"a\"} 1\n",
			"kubelet_restart_backoff_keys: unexpected label \"instance\": pass the metrics from the kubelet itself, not from a Prometheus server\n"},
		{"without a label", "# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys 1\n",
			"kubelet_restart_backoff_keys: missing label type\n"},
		{"escapes in a label", "# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys{type=\"\x1b]0;x\a\u009b2J\u202e\"} 1\n",
			"kubelet_restart_backoff_keys: label type: invalid value \"\\x1b]0;x\\a\\u009b2J\\u202e\"\n"},
		{"long label", "# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys{type=\"" + strings.Repeat("x", 900) + "\"} 1\n",
			"kubelet_restart_backoff_keys: label type: invalid value \"" + strings.Repeat("x", 64) + "\"\n"},
		{"negative", "# TYPE kubelet_restart_backoff_waiting_containers gauge\nkubelet_restart_backoff_waiting_containers -1\n",
			"kubelet_restart_backoff_waiting_containers: -1 is not a count: must be a whole number of at least 0\n"},
		{"not a number", "# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys{type=\"pod\"} NaN\n",
			"kubelet_restart_backoff_keys[\"pod\"]: NaN is not a count: must be a whole number of at least 0\n"},
		{"infinite", "# TYPE kubelet_restart_backoff_resets_total counter\nkubelet_restart_backoff_resets_total{type=\"pod\"} +Inf\n",
			"kubelet_restart_backoff_resets_total[\"pod\"]: +Inf is not a count: must be a whole number of at least 0\n"},
		{"no whole number", "# TYPE kubelet_pod_in_place_restarts_total counter\nkubelet_pod_in_place_restarts_total{action=\"a\",outcome=\"b\"} 1.5\n",
			"kubelet_pod_in_place_restarts_total[\"a\" \"b\"]: 1.5 is not a count: must be a whole number of at least 0\n"},
		{"no buckets", histogram(delay+`_count{type="pod"} 1`, delay+`_sum{type="pod"} 1`),
			delay + "[\"pod\"]: the histogram has no buckets up to +Inf\n"},
		{"no bucket of +Inf", histogram(delay+`_bucket{type="pod",le="1"} 1`, delay+`_bucket{type="pod",le="2"} 1`, delay+`_count{type="pod"} 1`),
			delay + "[\"pod\"]: the histogram has no buckets up to +Inf\n"},
		{"buckets that fall", histogram(delay+`_bucket{type="pod",le="1"} 2`, delay+`_bucket{type="pod",le="+Inf"} 1`, delay+`_count{type="pod"} 1`),
			delay + "[\"pod\"]: the buckets are not in order\n"},
		{"bucket twice", histogram(delay+`_bucket{type="pod",le="1"} 1`, delay+`_bucket{type="pod",le="1"} 1`, delay+`_bucket{type="pod",le="+Inf"} 1`, delay+`_count{type="pod"} 1`),
			delay + "[\"pod\"]: the buckets are not in order\n"},
		{"bucket without a number", histogram(delay+`_bucket{type="pod",le="NaN"} 1`, delay+`_bucket{type="pod",le="+Inf"} 1`, delay+`_count{type="pod"} 1`),
			delay + "[\"pod\"]: the histogram has no buckets up to +Inf\n"},
		{"bucket of -Inf", histogram(delay+`_bucket{type="pod",le="-Inf"} 0`, delay+`_bucket{type="pod",le="+Inf"} 1`, delay+`_count{type="pod"} 1`),
			delay + "[\"pod\"]: the buckets are not in order\n"},
		{"another count", histogram(delay+`_bucket{type="pod",le="1"} 1`, delay+`_bucket{type="pod",le="+Inf"} 1`, delay+`_count{type="pod"} 7`),
			delay + "[\"pod\"]: the buckets have 1 entries, but the count is 7\n"},
		{"part of a restart", histogram(delay+`_bucket{type="pod",le="1"} 1.5`, delay+`_bucket{type="pod",le="+Inf"} 1.5`, delay+`_count{type="pod"} 1.5`),
			delay + "[\"pod\"]: the counts are not whole numbers\n"},
		{"no sum", histogram(delay+`_bucket{type="pod",le="1"} 1`, delay+`_bucket{type="pod",le="+Inf"} 1`, delay+`_sum{type="pod"} NaN`, delay+`_count{type="pod"} 1`),
			delay + "[\"pod\"]: NaN is not a sum of durations\n"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			status, stdout, stderr := runStatus(strings.NewReader(tc.metrics))
			require.Equal(t, "error: stdin: "+tc.want, stderr)
			require.Equal(t, exitFailed, status)
			require.Empty(t, stdout)
		})
	}
}

func TestStatusOfTooMuch(t *testing.T) {
	status, stdout, stderr := runStatus(newlines{})
	require.Equal(t, exitFailed, status)
	require.Equal(t, "error: stdin: more than 4 MiB, which is the limit\n", stderr)
	require.Empty(t, stdout)
}

// newlines never ends.
type newlines struct{}

func (newlines) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

func TestStatusOfUnreadable(t *testing.T) {
	dir := t.TempDir()
	status, _, stderr := runStatus(nil, "--metrics", filepath.Join(dir, "none"))
	require.Equal(t, exitFailed, status)
	require.Equal(t, "error: "+filepath.Join(dir, "none")+": no such file or directory\n", stderr)

	status, _, stderr = runStatus(nil, "--metrics", dir)
	require.Equal(t, exitFailed, status)
	require.Equal(t, "error: "+dir+": is a directory\n", stderr)

	status, _, stderr = runStatus(nil, "--metrics", "\x1b[2J")
	require.Equal(t, exitFailed, status)
	require.Equal(t, "error: \\x1b[2J: no such file or directory\n", stderr)

	status, _, stderr = runStatus(iotestErr{})
	require.Equal(t, exitFailed, status)
	require.Equal(t, "error: stdin: input/output error\n", stderr)

	metrics, err := os.ReadFile("testdata/status/node.prom")
	require.NoError(t, err)
	for _, format := range statusFormats {
		var stderr bytes.Buffer
		require.Equal(t, exitFailed, run([]string{"status", "-o", format}, bytes.NewReader(metrics), brokenWriter{}, &stderr), format)
		require.Contains(t, []string{"error: no space left on device\n", `{"severity":"error","detail":"no space left on device"}` + "\n"}, stderr.String(), format)
	}
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, errors.New("input/output error") }

func TestStatusUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"argument", []string{"node.prom"}, `unknown command "node.prom" for "crashloop status"`},
		{"format", []string{"-o", "yaml"}, `no output format "yaml": use json, table`},
		{"nothing", []string{"--metrics", ""}, "--metrics is empty: must be a file, or - for stdin"},
		{"URL", []string{"--metrics", "https://node:10250/metrics"}, `--metrics "https://node:10250/metrics" must be a file: to read a URL, use a pipe such as kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | crashloop status`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			status, stdout, stderr := runStatus(strings.NewReader(""), tc.args...)
			require.Equal(t, exitUsage, status)
			require.Empty(t, stdout)
			require.Equal(t, "error: "+tc.want+"\nSee 'crashloop status --help'.\n", stderr)
		})
	}
}

func TestStatusOfTerminal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("another system has its terminals elsewhere")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no terminal: %v", err)
	}
	defer terminal.Close()
	status, _, stderr := runStatus(terminal)
	require.Equal(t, exitUsage, status)
	require.Contains(t, stderr, "stdin is a terminal: ")
}

// FuzzStatus searches for metrics whose report a terminal would act on.
func FuzzStatus(f *testing.F) {
	for _, name := range []string{"node.prom", "idle.prom", "later.prom"} {
		data, err := os.ReadFile("testdata/status/" + name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("# TYPE a gauge\n{}"))
	f.Add([]byte("{a=\"\x1b\"} 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range statusFormats {
			status, stdout, stderr := runStatus(bytes.NewReader(data), "-o", format)
			require.Contains(t, []int{exitSucceeded, exitFailed}, status)
			require.Equal(t, status == exitSucceeded, stderr == "")
			output := strings.ReplaceAll(stdout+stderr, "\n", "")
			require.Equal(t, output, text.Printable(output))
		}
	})
}
