// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// A plan that is too long is an error.
func TestTooLong(t *testing.T) {
	curve := backoff.Curve{Initial: time.Second, Max: time.Second}
	big := "spec: {containers: [{name: main}"
	for i := range 999 {
		big += fmt.Sprintf(", {name: c%d}", i)
	}
	for _, tc := range []struct {
		pod, lives string
		cost       *Cost
	}{
		{onePod, "1@0s", nil},
		{onePod, "0@exp(10s)", &Cost{entries: maxEntries - 1000}},
		{big + "]}", "1@0s", &Cost{work: maxWork - 100_000}},
	} {
		made := options(t, tc.pod).with(t, "main", tc.lives)
		made.Curve, made.For, made.Cost = curve, Longest, tc.cost
		_, err := Make(made)
		assert.ErrorContains(t, err, ": use a shorter --for, or longer runs", tc.lives)
		assert.ErrorContains(t, err, "the plan is too long by 2026-01-0")
	}
	for _, cost := range []Cost{{entries: maxEntries}, {work: maxWork}} {
		made := options(t, onePod).with(t, "main", "1@10s")
		_, err := Make(made)
		assert.NoError(t, err)
		made.Cost = &cost
		_, err = Make(made)
		assert.ErrorIs(t, err, ErrTooLong, "earlier plans count")
	}
	// All that ends, or comes to rest, is no reason for it.
	for pod, lives := range map[string]string{
		"spec: {containers: [{name: main}]}":                                                    "1@1h",
		"spec: {restartPolicy: OnFailure, containers: [{name: main}]}":                          "0@0s",
		"spec: {restartPolicy: Never, containers: [{name: main}]}":                              "1@0s",
		"{metadata: {deletionTimestamp: \"2026-01-01T11:00:00Z\"}, " + onePod + "}":             "1@0s",
		"{" + onePod + ", status: {phase: Failed}}":                                             "1@0s",
		"spec: {initContainers: [{name: main}], containers: [{name: other}]}":                   "0@0s",
		"spec: {restartPolicy: Never, initContainers: [{name: a}], containers: [{name: main}]}": "1@0s",
		"spec: {activeDeadlineSeconds: 60, containers: [{name: main}]}":                         "1@0s",
		"spec: {restartPolicy: OnFailure, initContainers: [{name: main, restartPolicy: Always}], containers: [{name: other}]}\nstatus: {containerStatuses: [{name: other, state: {terminated: {exitCode: 0}}}]}":                                                "1@0s",
		"spec: {restartPolicy: OnFailure, containers: [{name: main}]}\nstatus: {containerStatuses: [{name: main, state: {terminated: {exitCode: 0}}}]}":                                                                                                         "1@0s",
		"spec: {initContainers: [{name: main}], containers: [{name: other}]}\nstatus: {initContainerStatuses: [{name: main, state: {terminated: {exitCode: 0}}}], containerStatuses: [{name: other, state: {running: {startedAt: \"2026-01-01T11:00:00Z\"}}}]}": "1@0s",
	} {
		made := options(t, pod).with(t, "main", lives)
		made.Curve, made.For = curve, Longest
		_, err := Make(made)
		assert.NoError(t, err, pod)
	}
	made := options(t, onePod).with(t, "main", "1@0s")
	made.Curve, made.For, made.Recovers = curve, Longest, map[string]time.Duration{"main": time.Minute}
	_, err := Make(made)
	assert.NoError(t, err)
}
