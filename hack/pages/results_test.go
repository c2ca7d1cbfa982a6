// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestResultOfParts(t *testing.T) {
	c := check{Name: "node", parts: []string{"Pods", "Metrics"}}
	assert.Equal(t, []string{"node", "node/Pods", "node/Metrics"}, c.names())
	at := func(hour int, passed bool) *Result {
		return &Result{Passed: passed, At: time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)}
	}
	for _, test := range []struct {
		what                 string
		whole, pods, metrics *Result
		want                 string
		whollyPassed         bool
	}{
		{"nothing ran", nil, nil, nil, "not run", false},
		{"the whole", at(1, true), nil, nil, "passes", true},
		{"one part", nil, at(1, true), nil, "passes: only Pods", false},
		{"all parts", nil, at(1, true), at(2, true), "passes", true},
		{"a part fails", nil, at(1, true), at(2, false), "**fails**: Metrics", false},
		{"a part fails after the whole passed", at(1, true), at(2, false), nil, "**fails**: Pods", false},
		{"the whole passes after a part failed", at(2, true), at(1, false), nil, "passes", true},
		{"a part passes after the whole failed", at(1, false), at(2, true), nil, "**fails**", false},
		{"all parts pass after the whole failed", at(1, false), at(2, true), at(3, true), "passes", true},
		{"one part is older than the whole, which failed", at(2, false), at(1, true), at(3, true), "**fails**", false},
	} {
		t.Run(test.what, func(t *testing.T) {
			results := map[string]*Result{}
			for name, r := range map[string]*Result{"node": test.whole, "node/Pods": test.pods, "node/Metrics": test.metrics} {
				if r != nil {
					results[name] = r
				}
			}
			r := c.of(results)
			assert.Equal(t, test.want, r.cell())
			assert.Equal(t, test.whollyPassed, r != nil && r.Passed && !r.partly)
		})
	}
}
