// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// A plan that is too long is an error, and at once if that can be known before.
func TestTooLong(t *testing.T) {
	// A hundredth of the limit and of the time: the plans that are made up to the limit are most of the work.
	defer func(n int) { maxEntries = n }(maxEntries)
	maxEntries /= 100
	o := options(t, onePod)
	o.Curve, o.For = backoff.Curve{Initial: time.Second, Max: time.Second}, Longest/100
	const always = "spec: {initContainers: [{name: init}, {name: proxy, restartPolicy: Always}], containers: [{name: main}, {name: other}]}"
	const at = " the plan has more than 1000 lines: use a shorter --for, or longer runs"
	for _, tc := range []struct {
		pod, lives string
		known      bool
	}{
		{onePod, "1@0s", true},
		{onePod, "0@exp(10m)", true},
		{onePod, "1@uniform(1m,2m)", true},
		{always, "1@0s", true},
		{strings.Replace(always, "init}", "init, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [42]}}]}", 1), "1@0s", false},
		{onePod, "1@0s,1@0s", false},
	} {
		made := options(t, tc.pod).with(t, "main", tc.lives)
		made.Curve, made.For = o.Curve, o.For
		_, err := Make(made)
		if tc.known {
			assert.EqualError(t, err, "in 87h36m0s"+at)
		} else {
			assert.ErrorContains(t, err, at)
			assert.ErrorContains(t, err, "by 2026-01-01T12:")
		}
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
		made.Curve, made.For = o.Curve, o.For
		_, err := Make(made)
		assert.NoError(t, err, pod)
	}
	made := options(t, onePod).with(t, "main", "1@0s")
	made.Curve, made.For, made.Recovers = o.Curve, o.For, map[string]time.Duration{"main": time.Minute}
	_, err := Make(made)
	assert.NoError(t, err)
}
