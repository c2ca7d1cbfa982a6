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
)

func TestCheckStdin(t *testing.T) {
	manifest, err := os.ReadFile("testdata/pods.yaml")
	require.NoError(t, err)
	want, err := os.ReadFile("testdata/pods-gate-off.golden")
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitInvalid, run([]string{"check", "-"}, bytes.NewReader(manifest), &stdout, &stderr))
	// The lines of the issues break elsewhere.
	require.Equal(t, strings.Fields(strings.ReplaceAll(string(want), "pods.yaml", "stdin")), strings.Fields(stdout.String()))

	stdout.Reset()
	require.Equal(t, exitInvalid, run([]string{"check", "-"}, iotest.ErrReader(errors.New("is closed")), &stdout, &stderr))
	require.Contains(t, stdout.String(), "ERRORS\n  - stdin: is closed\n")
	require.Empty(t, stderr.String())
}

// FuzzManifest looks for a manifest that makes check panic, that is neither
// explained nor refused, or whose containers' exits are not all explained.
func FuzzManifest(f *testing.F) {
	for _, file := range []string{"pods.yaml", "pods-malformed.yaml", "workloads.yaml"} {
		data, err := os.ReadFile("testdata/" + file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &report{}
		r.addManifest("-", bytes.NewReader(data), allRestartGates)
		require.NotZero(t, len(r.Pods)+len(r.Errors))
		for _, pod := range r.Pods {
			for _, c := range pod.Containers {
				explained := map[int32]bool{}
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
