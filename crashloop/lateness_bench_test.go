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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/printer"
)

// BenchmarkLateness measures how late 50 containers restart that fail at once, with
// a maximum of 1 s, from the end of a wait to the start.
//
//	go test -run - -bench Lateness -benchtime 1x ./crashloop
func BenchmarkLateness(b *testing.B) {
	var pod strings.Builder
	pod.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n")
	for i := range 50 {
		fmt.Fprintf(&pod, "  - {name: c%d, image: a, command: [\"false\"]}\n", i)
	}
	config := filepath.Join(b.TempDir(), "kubelet.yaml")
	require.NoError(b, os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n"), 0o600))
	var late []time.Duration
	for range b.N {
		cmd := exec.Command("/proc/self/exe", "run", "-o", "json", "--root-dir", b.TempDir(), "--config", config, "--timeout", "20s", "-")
		cmd.Env = append(os.Environ(), asCommand+"=1")
		cmd.Stdin = strings.NewReader(pod.String())
		out, err := cmd.Output()
		require.Equal(b, exitTimeout, cmd.ProcessState.ExitCode(), "%v", err)
		retries := map[string]time.Time{}
		for line := range bytes.Lines(out) {
			var e printer.Event
			require.NoError(b, json.Unmarshal(line, &e))
			switch retry, waited := retries[e.Container]; {
			case !e.RetryAt.IsZero():
				retries[e.Container] = e.RetryAt
			case e.ExitCode != nil && waited:
				late = append(late, e.StartedAt.Sub(retry))
				delete(retries, e.Container)
			}
		}
	}
	require.NotEmpty(b, late)
	slices.Sort(late)
	b.ReportMetric(float64(len(late))/float64(b.N), "restarts/op")
	b.ReportMetric(late[len(late)/2].Seconds(), "p50-s")
	b.ReportMetric(late[len(late)*99/100].Seconds(), "p99-s")
}
