// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/report"
)

// execute runs a command.
func execute(cmd *cobra.Command, stdin string, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func simulated(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := execute(NewFleet(), "", args...)
	require.NoError(t, err)
	return out
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// Curves are names, durations or files, which package config resolves.
func TestCurves(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "kubelet.yaml"), kubelet+"crashLoopBackOff: {maxContainerRestartPeriod: 5s}\n")
	t.Chdir(dir)
	type curve struct {
		name             string
		initial, maximum float64
		first            bool
	}
	for _, tc := range []struct {
		args []string
		want []curve
	}{
		{nil, []curve{{"default", 10, 300, false}}},
		{[]string{"--curve", "default", "--curve", "reduced"}, []curve{{"default", 10, 300, false}, {"reduced", 1, 60, false}}},
		{[]string{"--curve", "4s", "--curve", "a=60s", "--curve", "250ms/1m"}, []curve{{"4s", 4, 4, false}, {"a", 10, 60, false}, {"250ms/1m", 0.25, 60, false}}},
		{[]string{"--curve", "node=" + file, "--curve", "kubelet.yaml", "--curve", "./kubelet.yaml"}, []curve{{"node", 5, 5, false}, {"kubelet.yaml", 5, 5, false}, {"./kubelet.yaml", 5, 5, false}}},
		{[]string{"--curve", "20s", "--curve", "default", "--feature-gates", "ReduceDefaultCrashLoopBackOffDecay=true"}, []curve{{"20s", 1, 20, false}, {"default", 1, 60, false}}},
		{[]string{"--curve", "default", "--curve", "reduced", "--feature-gates", "ReduceDefaultCrashLoopBackOffDecay=false"}, []curve{{"default", 10, 300, false}, {"reduced", 1, 60, false}}},
		{[]string{"--curve", "default", "--curve", "1s/2s", "--feature-gates", "KubeletDelayFirstContainerRestart=true"}, []curve{{"default", 10, 300, true}, {"1s/2s", 1, 2, true}}},
	} {
		var r report.Report
		require.NoError(t, json.Unmarshal([]byte(simulated(t, append(tc.args, "--pods", "1", "-o", "json")...)), &r))
		var got []curve
		for _, c := range r.Curves {
			got = append(got, curve{c.Name, c.InitialSeconds, c.MaximumSeconds, c.DelayFirst})
		}
		assert.Equal(t, tc.want, got, tc.args)
	}
	write(t, file, kubelet+"crashLoopBackoff: {}\ncrashLoopBackOff: {maxContainerRestartPeriod: 5s}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}\n")
	_, warnings, err := execute(NewFleet(), "", "--curve", "kubelet.yaml")
	require.NoError(t, err)
	assert.Contains(t, warnings, "warning: kubelet.yaml: ")
	assert.Contains(t, warnings, "crashLoopBackoff")
}

// Invalid input is an error before the simulation: nothing is printed.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "bad.yaml", kubelet+"crashLoopBackOff: {maxContainerRestartPeriod: 301s}\n")
	write(t, "empty.yaml", "")
	for _, tc := range []struct {
		args    string
		want    string
		failure bool
	}{
		{"--curve a=10s --curve a=20s", `curve "a": two curves have this name`, false},
		{"--curve default --curve default", `curve "default": two curves have this name`, false},
		{"--curve =4s", `--curve "=4s": must be CURVE or NAME=CURVE`, false},
		{"--curve a=", `--curve "a=": must be CURVE or NAME=CURVE`, false},
		{"--curve 0s", `must be from 1s to 300s`, false},
		{"--curve 1000h", `must be from 1s to 300s`, false},
		{"--curve 0s/0s", "the initial delay 0s must be from 1ms", false},
		{"--curve 10s/5s", "the initial delay 10s must be from 1ms to the maximum, 5s", false},
		{"--curve -1s/5s", "the initial delay -1s", false},
		{"--curve 4s --feature-gates KubeletCrashLoopBackOffMax=false", `--curve 4s: the feature gate KubeletCrashLoopBackOffMax is off`, true},
		{"--curve none.yaml", `--curve "none.yaml": no such file or directory; a curve is default`, false},
		{"--curve empty.yaml", "--curve empty.yaml: empty.yaml: ", true},
		{"--curve bad.yaml", "--curve bad.yaml: bad.yaml: crashLoopBackOff.maxContainerRestartPeriod", true},
		{"--curve a\x1b[31m=4s", "cannot be printed", false},
		{"--curve a\xff=4s", "cannot be printed", false},
		{"--curve " + strings.Repeat("x", 61) + "=4s", "at most 60 characters", false},
		{"--nodes 0", "nodes: 0: must be from 1 to 1000000", false},
		{"--nodes 99999999999999999999", "invalid argument", false},
		{"--nodes 1000000 --pods 10000 --containers 1000", "10000000000000 containers: must be at most 1000000000", false},
		{"--for 8766000h", `"8766000h" must be a duration such as 90s, 1h30m or, at most, 8760h`, false},
		{"--for 9000h", "for: 9000h0m0s: must be from 10s to 8760h0m0s", false},
		{"--for 1000000y", "invalid argument", false},
		{"--exit 1@exp(1000000h)", "must be a duration from 0s to 8760h0m0s", false},
		{"--exit 1@normal(3s)", "--exit: ", false},
		{"--fail -0.1", "fail: the share -0.1 must be from 0 to 1", false},
		{"--fail NaN", "fail: the share NaN must be from 0 to 1", false},
		{"--fail 101%", "fail: the share 1.01 must be from 0 to 1", false},
		{"--fail some", `"some" must be a share such as 0.5 or 50%`, false},
		{"--succeed Inf", "succeed: the share +Inf", false},
		{"--outage 10m", `--outage "10m" must be FROM,LENGTH or FROM,LENGTH,SHARE`, false},
		{"--outage 10m,x", `"x" must be a duration`, false},
		{"--outage 10m,1m,2", "outage: the share 2 must be from 0 to 1", false},
		{"--outage 50m,20m", "outage: from 50m0s for 20m0s: must be longer than 0s, and end within the", false},
		{"--restart-policy Never", `--restart-policy "Never" must be Always or OnFailure`, false},
		{"--step 7s", "step: 7s: must be a multiple of 10s", false},
		{"--budget-requests NaN", "budget-requests: NaN: must be more than 0", false},
		{"--budget-requests fast", `"fast" must be a number per second`, false},
		{"--budget-cpu 25", `"25" is more than one processor: must be a share such as 0.5, 50% or 500m, or 200% for two processors`, false},
		{"--budget-cpu 40m", "budget-cpu: 0.04: must be more than a kubelet uses without restarts, 0.04", false},
		{"--budget-cpu 50%m", `"50%m" must be a share such as 0.5 or 50%`, false},
		{"--budget-cpu 4%", "budget-cpu: 0.04: must be more than a kubelet uses without restarts, 0.04", false},
		{"--budget-cpu -1", "budget-cpu: -1: must be more than 0 and at most 10000", false},
		{"--budget-cpu 1 --budget-window 15s", "budget-window: 15s: must be a multiple of 10s", false},
		{"--budget-cpu 1 --for 8760h", "too many restarts to look for a maximum", false},
		{"--budget-requests 0", "--budget-requests must be more than 0", false},
		{"--budget-cpu 0%", "--budget-cpu must be more than 0", false},
		{"--budget-window 1m", "--budget-window needs --budget-requests or --budget-cpu", false},
		{"--recover 0s", "--recover must be more than 0", false},
		{"--recover 5m --outage 10m,10m", "--recover is for the share of --fail, which is 0", false},
		{"--requests-per-restart NaN", "requests-per-restart: NaN: must be from 0 to 10000", false},
		{"--cpu-per-restart -1s", "cpu-per-restart in seconds: -1", false},
		{"--cpu-per-request -1s", "cpu-per-request in seconds: -1", false},
		{"-o yaml", `no output format "yaml": use csv, html, json, svg, table`, false},
		{"pod.yaml", "unknown command", false},
		{"--curve 4", `--curve "4": no such file or directory; a curve is default, reduced, a maximum such as 4s, INITIAL/MAXIMUM such as 250ms/1m, or a file`, false},
		{"--budget-requests 0.01", "no maximum is within the budget", true},
	} {
		began := time.Now()
		out, _, err := execute(NewFleet(), "", strings.Fields(tc.args)...)
		if assert.ErrorContains(t, err, tc.want, tc.args) {
			var failure *Failure
			assert.Equal(t, tc.failure, errors.As(err, &failure), tc.args)
		}
		if !strings.Contains(tc.want, "within the budget") { // The report shows the cost of the highest maximum.
			assert.Empty(t, out, tc.args)
		}
		assert.Less(t, time.Since(began), 20*time.Second, tc.args)
	}
}

// broken is a standard output that is closed, or on a full disk.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// An output that cannot be written is a failure in each format.
func TestBrokenOutput(t *testing.T) {
	for _, format := range formats {
		cmd := NewFleet()
		cmd.SetArgs([]string{"--pods", "1", "-o", format})
		cmd.SetOut(broken{})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		var failure *Failure
		assert.ErrorIs(t, err, io.ErrClosedPipe, format)
		assert.ErrorAs(t, err, &failure, format)
	}
}

// The formats with charts are whole documents.
func TestCharts(t *testing.T) {
	for format, parts := range map[string][]string{
		"html": {"<!DOCTYPE html>", "<svg ", "API requests of all nodes", "</html>"},
		"svg":  {"<svg ", "Excess restarts over default", "Containers recovered", "</svg>"},
	} {
		out := simulated(t, "--pods", "2", "--curve", "default", "--curve", "reduced", "--outage", "10m,10m", "-o", format)
		for _, part := range parts {
			assert.Contains(t, out, part, format)
		}
	}
}

func TestBar(t *testing.T) {
	assert.Equal(t, "\r\x1b[K["+strings.Repeat("=", 10)+strings.Repeat(" ", 30)+"] 25 of 100 nodes, 30s left", bar(25, 100, 10*time.Second))
	assert.Contains(t, bar(100, 100, time.Minute), "0s left")
	// Without a terminal there is no progress bar.
	_, stderr, err := execute(NewFleet(), "", "--nodes", "50", "--pods", "1")
	require.NoError(t, err)
	assert.Empty(t, stderr)
}
