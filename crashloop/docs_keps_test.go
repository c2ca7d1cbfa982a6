// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each requirement of the KEPs is shown by something that exists, or has a reason why it is not met. TestDocsCommands and
// TestDocsLinks check commands and links.
func TestDocsKEPs(t *testing.T) {
	goTest := regexp.MustCompile("`(Test\\w+)` in `([^`]+)`")
	scenario := regexp.MustCompile("`(?:make node-e2e SCENARIO=)?(Pods|Disruptions|Persist|Metrics|Machine)/(\\w+)`")
	scenarios := goFiles(t, "test/node/e2e")
	rows := 0
	// A row without something that shows it needs a note. Notes follow their table.
	for section := range strings.SplitSeq(repositoryFile(t, "docs/keps.md"), "\n## ") {
		notes := 0
		for line := range strings.Lines(section) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| section |") {
				continue
			}
			cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(line, `\|`, ""), "| "), " |\n"), " | ")
			require.Len(t, cells, 4, line)
			rows++
			shown, note := cells[2], strings.TrimSpace(cells[3])
			if note != "" {
				notes++
				assert.Equal(t, strconv.Itoa(notes), note, "notes are numbered in their order: %s", line)
				assert.Contains(t, section, "\n"+note+". ", "no such note: %s", line)
			}
			if shown == "not met" {
				assert.NotEmpty(t, note, "no reason: %s", line)
				continue
			}
			assert.Regexp(t, "`|\\]\\(", shown, "nothing to run or to read: %s", line)
			for _, m := range goTest.FindAllStringSubmatch(shown, -1) {
				assert.Contains(t, testsIn(t, m[2]), "func "+m[1]+"(", line)
			}
			for _, m := range scenario.FindAllStringSubmatch(shown, -1) {
				assert.True(t, strings.Contains(scenarios, "\t{\""+m[2]+"\","), "no scenario %s: %s", m[2], line)
			}
		}
		assert.NotContains(t, section, fmt.Sprintf("\n%d. ", notes+1), "a note without a row")
	}
	assert.Greater(t, rows, 100)
}

// testsIn returns the tests of a directory of this repository, or those that the series add to a directory of Kubernetes.
func testsIn(t *testing.T, dir string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(repository, dir)); err == nil {
		return goFiles(t, dir)
	}
	var all strings.Builder
	all.WriteString(goFiles(t, filepath.Join("patches/_src/*", dir)))
	patches, err := filepath.Glob(filepath.Join(repository, "patches/v1.*/*.patch"))
	require.NoError(t, err)
	for _, patch := range patches {
		text, err := os.ReadFile(patch)
		require.NoError(t, err)
		for _, file := range strings.Split(string(text), "\n+++ b/")[1:] {
			name, hunks, _ := strings.Cut(file, "\n")
			if filepath.Dir(name) == dir {
				all.WriteString(hunks)
			}
		}
	}
	return all.String()
}

// goFiles returns the Go code of the directories that match a pattern.
func goFiles(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, pattern, "*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
