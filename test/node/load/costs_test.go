// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
)

// stack returns a sample with these functions, innermost first.
func stack(milliseconds int64, functions ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, milliseconds * 1e6}}
	for _, f := range functions {
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: f}}}})
	}
	return s
}

func TestCosts(t *testing.T) {
	const k = "k8s.io/kubernetes/pkg/kubelet"
	start := []string{k + "/kuberuntime.(*kubeGenericRuntimeManager).startContainer", k + ".(*Kubelet).SyncPod", k + ".(*podWorkers).podWorkerLoop"}
	p := &profile.Profile{Sample: []*profile.Sample{
		stack(10, append([]string{"google.golang.org/grpc.invoke"}, start...)...),
		stack(4, append([]string{"runtime.gcAssistAlloc", "runtime.mallocgc"}, start...)...),
		stack(6, start[1:]...),
		stack(8, "google.golang.org/grpc/internal/transport.(*loopyWriter).run"),
		stack(2, k+"/pleg.(*GenericPLEG).Relist"),
		stack(20, k+"/volumemanager.(*x).Run"),
	}}
	assert.Equal(t, map[string]float64{
		"start: the container in the runtime, its files and links": 5,
		"garbage collection, the runtime of Go":                    2,
		"pod syncs, without the start":                             3,
		"connection to the runtime: gRPC":                          4,
		"relist of all pods, once a second":                        1,
		"all other":                                                10,
	}, costs(p, cpuPurposes, 2))
	assert.Equal(t, map[string]float64{
		"a start waits for the runtime":                7,
		"the relist of all pods waits for the runtime": 1,
	}, costs(p, waitPurposes, 2))
	assert.Empty(t, costs(&profile.Profile{}, cpuPurposes, 0))
}
