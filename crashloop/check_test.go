// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// The golden file of a case is testdata/NAME.golden.
func TestCheck(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want int
	}{
		{"default", nil, exitSucceeded},
		{"file", []string{"--config", "kubelet.yaml"}, exitSucceeded},
		{"drop-ins", []string{"--config", "kubelet.yaml", "--config-dir", "kubelet.conf.d"}, exitSucceeded},
		{"drop-ins-json", []string{"--config", "kubelet.yaml", "--config-dir", "kubelet.conf.d", "-o", "json"}, exitSucceeded},
		{"drop-ins-yaml", []string{"--config", "kubelet.yaml", "--config-dir", "kubelet.conf.d", "-o", "yaml"}, exitSucceeded},
		{"gate-off", []string{"--config", "kubelet.yaml", "--feature-gates", "KubeletCrashLoopBackOffMax=false"}, exitSucceeded},
		{"first-delayed", []string{"--feature-gates", "AllAlpha=true", "--feature-gates", "ReduceDefaultCrashLoopBackOffDecay=false"}, exitSucceeded},
		{"draft", []string{"--config", "draft.yaml"}, exitSucceeded},
		{"slow", []string{"--config", "slow.yaml"}, exitRefused},
		{"slow-json", []string{"--config", "slow.yaml", "-o", "json"}, exitRefused},
		{"integer-yaml", []string{"--config", "integer.yaml", "-o", "yaml"}, exitRefused},
		{"missing", []string{"--config", "missing.yaml", "--config-dir", "missing.d"}, exitRefused},
		{"former-gate", []string{"--feature-gates", "EnableKubeletCrashLoopBackoffMax=true"}, exitRefused},
		{"pods", []string{"--feature-gates", "RestartPodOnContainerExits=true", "pods.yaml"}, exitSucceeded},
		{"pods-json", []string{"--feature-gates", "RestartPodOnContainerExits=true", "-o", "json", "pods.yaml"}, exitSucceeded},
		{"pods-yaml", []string{"-o", "yaml", "pods.yaml"}, exitRefused},
		{"pods-gate-off", []string{"pods.yaml"}, exitRefused},
		{"pods-rules-off", []string{"--feature-gates", "AllBeta=false", "pods.yaml"}, exitRefused},
		{"pods-malformed", []string{"pods-malformed.yaml", "missing.yaml", "kubelet.yaml"}, exitRefused},
		{"pods-config-invalid", []string{"--config", "slow.yaml", "pods.yaml"}, exitRefused},
		{"workloads", []string{"workloads.yaml"}, exitRefused},
		{"restart-at", []string{"restart-at.yaml"}, exitSucceeded},
		{"max-restarts", []string{"max-restarts.yaml"}, exitSucceeded},
		{"max-restarts-on", []string{"--feature-gates", "KubeletMaxRestartsAnnotation=true", "max-restarts.yaml"}, exitSucceeded},
		{"max-restarts-json", []string{"--feature-gates", "KubeletMaxRestartsAnnotation=true", "-o", "json", "max-restarts.yaml"}, exitSucceeded},
		{"curves", []string{"curves.yaml"}, exitSucceeded},
		{"curves-on", []string{"--feature-gates", "KubeletRestartBackOffAnnotation=true", "curves.yaml"}, exitSucceeded},
		{"curves-json", []string{"--feature-gates", "KubeletRestartBackOffAnnotation=true", "-o", "json", "curves.yaml"}, exitSucceeded},
		{"restart-at-on", []string{"--feature-gates", "KubeletRestartAtAnnotation=true", "restart-at.yaml"}, exitSucceeded},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir("testdata")
			var stdout, stderr bytes.Buffer
			status := run(append([]string{"check"}, tc.args...), nil, &stdout, &stderr)
			require.Equal(t, tc.want, status)
			require.Empty(t, stderr.String())
			golden := tc.name + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, stdout.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), stdout.String())
			if slices.Contains(tc.args, "-o") {
				return
			}
			for line := range strings.Lines(stdout.String()) {
				require.LessOrEqual(t, utf8.RuneCountInString(line), 101, "100 columns and the end of the line: %s", line)
			}
		})
	}
	t.Run("no golden file is left over", func(t *testing.T) {
		files, err := filepath.Glob("testdata/*.golden")
		require.NoError(t, err)
		require.Len(t, files, len(tests))
	})
}

// --curve takes the place of a configuration, as in plan fleet.
func TestCurveFlag(t *testing.T) {
	for _, tc := range []struct {
		args   string
		status int
		want   []string
	}{
		{"check --curve default", exitSucceeded, []string{"initial  10s   default\n", "maximum  300s  default\n"}},
		{"check --curve reduced", exitSucceeded, []string{"initial  1s   feature gate ReduceDefaultCrashLoopBackOffDecay\n", "ReduceDefaultCrashLoopBackOffDecay    ALPHA  true   --feature-gates\n"}},
		{"check --curve 4s", exitSucceeded, []string{"initial  4s  lowered to the maximum\n", "maximum  4s  maxContainerRestartPeriod\n"}},
		{"check --curve fast=4s", exitSucceeded, []string{"maximum  4s "}},
		{"check --curve 250ms/1s", exitSucceeded, []string{"initial  0.25s  --curve\n", "delays   0s, 0.25s, 0.5s, 1s, 1s … from each exit\n", "  - --curve: 0.25s/1s: no kubelet has this curve"}},
		{"check --curve 1s/600s", exitSucceeded, []string{"  - --curve: 1s/600s: no kubelet has this curve"}},
		{"check --curve 250ms/1s -o json", exitSucceeded, []string{`"value": "250ms",`, `"reason": "--curve"`}},
		{"check --curve testdata/kubelet.yaml", exitSucceeded, []string{"in testdata/kubelet.yaml\n"}},
		{"plan --for 1m --exit main=1@5s --curve 2s ../examples/crash.yaml", exitSucceeded, []string{", back-off 2s\n"}},
		{"plan --for 1m --exit main=1@5s --curve 250ms/1m ../examples/crash.yaml", exitSucceeded, []string{"10.3s  main       starts, restart 2\n"}},
		{"check --curve 0s", exitUsage, []string{`invalid argument "0s" for "--curve" flag: `, "must be from 1s to 300s"}},
		{"plan --curve 5s/1s -", exitUsage, []string{"the initial delay 5s must be from 1ms to the maximum, 1s"}},
		{"run --curve reduce -", exitUsage, []string{`invalid argument "reduce" for "--curve" flag: no such file or directory; a curve is default, reduced, a maximum such as 4s, `}},
		{"run --curve 4s --config testdata/kubelet.yaml -", exitUsage, []string{"[config curve] were all set"}},
		{"plan --curve 4s --config-dir testdata/kubelet.conf.d -", exitUsage, []string{"[config-dir curve] were all set"}},
		{"check --curve 4s --feature-gates KubeletCrashLoopBackOffMax=false", exitRefused, []string{"--curve: the feature gate KubeletCrashLoopBackOffMax is off"}},
		{"plan --curve testdata/slow.yaml -", exitRefused, []string{"error: testdata/slow.yaml: crashLoopBackOff.maxContainerRestartPeriod"}},
	} {
		var output bytes.Buffer
		require.Equal(t, tc.status, run(strings.Fields(tc.args), strings.NewReader(""), &output, &output), "%s\n%s", tc.args, &output)
		for _, want := range tc.want {
			require.Contains(t, output.String(), want, tc.args)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no such command", []string{"chek"}, "error: unknown command \"chek\" for \"crashloop\"\n\nDid you mean this?\n\tcheck\n\nSee 'crashloop --help'.\n"},
		{"no such flag", []string{"check", "--conf", "f"}, "error: unknown flag: --conf\nSee 'crashloop check --help'.\n"},
		{"no such format", []string{"check", "-o", "xml"}, "error: no output format \"xml\": use json, table, yaml\nSee 'crashloop check --help'.\n"},
		{"no value", []string{"check", "--config"}, "error: flag needs an argument: --config\nSee 'crashloop check --help'.\n"},
		{"help for no such command", []string{"help", "nosuch"}, "error: unknown command \"nosuch\" for \"crashloop\"\nSee 'crashloop help --help'.\n"},
		{"help for no such subcommand", []string{"help", "completion", "nosuch"}, "error: unknown command \"nosuch\" for \"crashloop completion\"\nSee 'crashloop help --help'.\n"},
		{"completion for no such shell", []string{"completion", "nosuch"}, "error: unknown command \"nosuch\" for \"crashloop completion\"\nSee 'crashloop completion --help'.\n"},
		{"malformed gate", []string{"check", "--feature-gates", "KubeletCrashLoopBackOffMax"}, "error: invalid argument \"KubeletCrashLoopBackOffMax\" for \"--feature-gates\" flag: malformed pair, expect string=bool\nSee 'crashloop check --help'.\n"},
	}
	for _, flag := range []string{"-o json", "-o=json", "-ojson", "--output json", "--output=json"} {
		tests = append(tests, struct {
			name string
			args []string
			want string
		}{flag, append([]string{"check", "--conf"}, strings.Fields(flag)...), "{\"severity\":\"error\",\"detail\":\"unknown flag: --conf\"}\n"})
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, exitUsage, run(tc.args, nil, &stdout, &stderr))
			require.Empty(t, stdout.String())
			require.Equal(t, tc.want, stderr.String())
		})
	}
}

// compareGolden compares with testdata/run/NAME.golden.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", "run", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestReportThatIsNotWritten(t *testing.T) {
	for _, format := range outputFormats() {
		var stderr bytes.Buffer
		require.Equal(t, exitFailed, run([]string{"check", "-o", format}, nil, brokenWriter{}, &stderr), format)
		require.Equal(t, map[bool]string{false: "error: no space left on device\n", true: `{"severity":"error","detail":"no space left on device"}` + "\n"}[format == outputJSON], stderr.String(), format)
	}
}

func TestHelpAndCompletion(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"help", []string{"check", "--help"}, []string{"--config FILE", "Exit status: 0 valid", "KubeletCrashLoopBackOffMax=true|false (BETA - default=true)"}},
		{"help for a command", []string{"help", "check"}, []string{"--config FILE"}},
		{"help for a subcommand", []string{"help", "completion", "bash"}, []string{"bash-completion"}},
		{"help alone", []string{"help"}, []string{"Available Commands:"}},
		{"completion alone", []string{"completion"}, []string{"Available Commands:"}},
		{"bash", []string{"completion", "bash"}, []string{"__start_crashloop"}},
		{"zsh", []string{"completion", "zsh"}, []string{"#compdef crashloop"}},
		{"fish", []string{"completion", "fish"}, []string{"__crashloop_perform_completion"}},
		{"output formats", []string{"__complete", "check", "-o", ""}, []string{"json\ntable\nyaml\n"}},
		{"files", []string{"__complete", "check", "--config", ""}, []string{"yaml\nyml\njson\n:8\n"}},
		{"manifests", []string{"__complete", "check", ""}, []string{"yaml\nyml\njson\n:8\n"}},
		{"flags", []string{"__complete", "check", "--"}, []string{
			"--config\tthe KubeletConfiguration, as the kubelet's --config\n",
			"--feature-gates\tfeature gates, as the kubelet's --feature-gates; they override those of the files\n",
			"--output\tthe output format: json, table, yaml\n",
		}},
		{"gates", []string{"__complete", "check", "--feature-gates", "AllBeta=false,Kubelet"},
			[]string{"AllBeta=false,KubeletCrashLoopBackOffMax=true\nAllBeta=false,KubeletCrashLoopBackOffMax=false\n", ":6\n"}},
		{"directories", []string{"__complete", "check", "--config-dir", ""}, []string{":16\n"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, exitSucceeded, run(tc.args, nil, &stdout, &stderr))
			for _, want := range tc.want {
				require.Contains(t, stdout.String(), want)
			}
		})
	}
}
