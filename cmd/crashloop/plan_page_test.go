// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/plan.md shows what the commands print. With -update it is written again.
func TestPlanPage(t *testing.T) {
	t.Chdir("../..")
	const file = "docs/plan.md"
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	transcript := regexp.MustCompile("(?s)\n```\n\\$ crashloop ([^\n]*)\n(.*?)```\n")
	matches := transcript.FindAllSubmatchIndex(page, -1)
	assert.Len(t, matches, 3)
	var written []byte
	from := 0
	for _, m := range matches {
		command := strings.ReplaceAll(string(page[m[2]:m[3]]), "'", "")
		var output bytes.Buffer
		require.Equal(t, exitSucceeded, run(strings.Fields(command), strings.NewReader(""), &output, &output), &output)
		if !*update {
			assert.Equal(t, string(page[m[4]:m[5]]), output.String(), command)
		}
		written = append(append(written, page[from:m[4]]...), output.Bytes()...)
		from = m[5]
	}
	written = append(written, page[from:]...)
	if *update {
		require.NoError(t, os.WriteFile(file, written, 0o644))
	}
	assert.LessOrEqual(t, bytes.Count(written, []byte("\n")), 120, "a page for operators is short")
}
