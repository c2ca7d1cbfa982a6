// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// transcript is a command of README and what it prints, and planTranscript one whose output has
// no times of this machine.
var (
	transcript     = regexp.MustCompile("(?s)\n```\n\\$ go run ./cmd/crashloop (run [^\n]*)\n(.*?)\n```\n")
	planTranscript = regexp.MustCompile("(?s)\n```\n\\$ crashloop (plan [^\n]*)\n(.*?)```\n")
)

// README shows what the command prints. With -update it is written anew.
func TestREADME(t *testing.T) {
	t.Chdir("../..")
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	m := transcript.FindSubmatchIndex(readme)
	require.NotNil(t, m, "README has no transcript")

	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	var output bytes.Buffer
	require.Equal(t, exitSucceeded, run(strings.Fields(string(readme[m[2]:m[3]])), strings.NewReader(""), &output, &output))
	got := strings.TrimSpace(strings.ReplaceAll(output.String(), cache, "/home/user/.cache"))
	if *update {
		require.NoError(t, os.WriteFile("README.md", bytes.Join([][]byte{readme[:m[4]], []byte(got), readme[m[5]:]}, nil), 0o644))
		return
	}
	require.Equal(t, bySource(string(readme[m[4]:m[5]])), bySource(got))
}

// README shows what plan prints. With -update it is written again.
func TestREADMEPlan(t *testing.T) {
	t.Chdir("../..")
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	m := planTranscript.FindSubmatchIndex(readme)
	require.NotNil(t, m, "README has no plan")
	var output bytes.Buffer
	require.Equal(t, exitSucceeded, run(strings.Fields(string(readme[m[2]:m[3]])), strings.NewReader(""), &output, &output), &output)
	if *update {
		require.NoError(t, os.WriteFile("README.md", bytes.Join([][]byte{readme[:m[4]], output.Bytes(), readme[m[5]:]}, nil), 0o644))
		return
	}
	require.Equal(t, string(readme[m[4]:m[5]]), output.String())
}

var (
	times  = regexp.MustCompile(`[0-9]+(\.[0-9]+)?( ms|s)\b`)
	spaces = regexp.MustCompile(` +`)
)

// bySource sorts lines by the container or pod that they are about, and by
// whether it wrote them. Those of others may come before or after. Times are left
// out, and so is a wait, which on a slow machine is over before it is seen.
func bySource(text string) map[string][]string {
	lines := map[string][]string{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(times.ReplaceAllString(line, "TIME"), ", next restart in ")
		line = spaces.ReplaceAllString(strings.TrimSpace(line), " ")
		source := ""
		if words := strings.SplitN(line, " ", 4); len(words) == 4 && words[0] == "TIME" {
			source = words[1]
			if words[2] == "|" {
				source += " |"
			}
		}
		lines[source] = append(lines[source], line)
	}
	return lines
}
