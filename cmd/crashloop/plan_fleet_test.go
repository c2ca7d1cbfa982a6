// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fleet and merge are subcommands of plan, with the exit statuses of the other commands.
func TestPlanFleetStatus(t *testing.T) {
	for _, tc := range []struct {
		args        string
		status      int
		out, stderr string
	}{
		{"plan fleet --pods 3", exitSucceeded, "1 node of 3 pods, 1h; 100% fail: 1@10s", ""},
		{"plan fleet --pods 0", exitUsage, "", "error: pods: 0: must be from 1 to 10000\nSee 'crashloop plan fleet --help'.\n"},
		{"plan fleet --pods 0 -o json", exitUsage, "", `"detail":"pods: 0: must be from 1 to 10000"`},
		{"plan fleet --curve none.yaml", exitFailed, "", "error: --curve none.yaml: none.yaml: "},
		{"plan fleet --budget-requests 0.1", exitFailed, "no maximum stays inside it: 5m: ", "error: no maximum stays inside the budget\n"},
		{"plan merge", exitUsage, "", "there is no FILE to merge"},
		{"plan merge -", exitFailed, "", "error: stdin: it is empty\n"},
		{"plan merge -o json none", exitFailed, "", `{"severity":"error","detail":"none: no such file or directory"`},
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, tc.status, run(strings.Fields(tc.args), strings.NewReader(""), &out, &errs), tc.args)
		assert.Contains(t, out.String(), tc.out, tc.args)
		assert.Contains(t, errs.String(), tc.stderr, tc.args)
		if tc.stderr == "" {
			assert.Empty(t, errs.String())
		}
		if tc.out == "" {
			assert.Empty(t, out.String())
		}
	}
}
