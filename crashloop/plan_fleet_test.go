// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
)

// A value that is no number is an error that says what would be.
func TestFlagErrors(t *testing.T) {
	for args, want := range map[string]string{
		"plan fleet --nodes 1e9":                       `invalid argument "1e9" for "--nodes" flag: must be a whole number such as 1`,
		"plan fleet --pods 1.5":                        `invalid argument "1.5" for "--pods" flag: must be a whole number such as 110`,
		"plan fleet --containers 99999999999999999999": `invalid argument "99999999999999999999" for "--containers" flag: must be a whole number such as 1, and smaller`,
		"plan fleet --seed -1":                         `invalid argument "-1" for "--seed" flag: must be a whole number that is not negative such as 1`,
		"plan --seed x -":                              `invalid argument "x" for "--seed" flag: must be a whole number that is not negative such as 1`,
		"plan fleet --requests-per-restart x":          `invalid argument "x" for "--requests-per-restart" flag: must be a number such as ` + fmt.Sprint(fleet.MeasuredCosts.RequestsPerRestart),
		"plan fleet --request-limit 1e400":             `invalid argument "1e400" for "--request-limit" flag: must be a number such as ` + fmt.Sprint(fleet.MeasuredCosts.RequestLimit) + `, and smaller`,
		"plan fleet --feature-gates a=b":               `invalid argument "a=b" for "--feature-gates" flag: invalid value of a: b: must be true or false`,
		"plan --feature-gates a=b -":                   `invalid argument "a=b" for "--feature-gates" flag: invalid value of a: b: must be true or false`,
		"run --max-restarts x -":                       `invalid argument "x" for "--max-restarts" flag: must be a whole number such as -1`,
		"run --unconfined=x -":                         `invalid argument "x" for "--unconfined" flag: must be true or false`,
		"plan fleet --for x":                           `invalid argument "x" for "--for" flag: "x" must be a duration such as 90s, 1h30m or, at most, 8760h`,
		"plan fleet --feature-gates a":                 `invalid argument "a" for "--feature-gates" flag: malformed pair, expect string=bool`,
		"plan fleet --nodes":                           "flag needs an argument: --nodes",
		"plan fleet --node 3":                          "unknown flag: --node",
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, exitUsage, run(strings.Fields(args), strings.NewReader(""), &out, &errs), args)
		text, _, _ := strings.Cut(errs.String(), "\n")
		assert.Equal(t, "error: "+want, text)
	}
}

// fleet is a subcommand of plan, with the exit statuses of the other commands.
func TestPlanFleetStatus(t *testing.T) {
	for _, tc := range []struct {
		args        string
		status      int
		out, stderr string
	}{
		{"plan fleet --pods 3", exitSucceeded, "1 node of 3 pods, 1h; 100% fail: 1@10s", ""},
		{"plan fleet --pods 0", exitUsage, "", "error: pods: 0: must be from 1 to 10000\nSee 'crashloop plan fleet --help'.\n"},
		{"plan fleet --pods 0 -o json", exitUsage, "", `"detail":"pods: 0: must be from 1 to 10000"`},
		{"plan fleet --curve testdata/slow.yaml", exitRefused, "", "error: --curve testdata/slow.yaml: testdata/slow.yaml: "},
		{"plan fleet --budget-requests 0.1", exitFailed, "no maximum is within the budget: 5m: ", "error: no maximum is within the budget\n"},
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
