// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// purpose is a purpose for which the kubelet uses time.
type purpose struct {
	what string
	// functions are substrings of function names. A sample whose stack has such a
	// function belongs to the first purpose in the list that matches.
	functions []string
}

// cpuPurposes are the purposes for which the kubelet uses the processor.
var cpuPurposes = []purpose{
	{"garbage collection, the runtime of Go", []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart"}},
	{"start: the container in the runtime, its files and links", []string{".startContainer"}},
	{"start: removal of the container before", []string{"newPodContainerDeletor", ".(*realContainerGC)."}},
	{"pod syncs, without the start", []string{".podWorkerLoop", ".(*Kubelet).syncLoop"}},
	{"relist of one pod, after a start or for an exit", []string{".(*GenericPLEG).relistPod"}},
	{"relist of all pods, once a second", []string{".(*GenericPLEG).Relist"}},
	{"status: PATCH of pods", []string{"/status.(*manager)."}},
	{"events: PATCH and POST", []string{"/tools/record."}},
	{"watch: pods come back from the API server and are compared", []string{"/kubelet/config.", "/tools/cache."}},
	{"connection to the API server: HTTP/2 and TLS", []string{"net/http", "golang.org/x/net/http2", "crypto/tls"}},
	{"connection to the runtime: gRPC", []string{"google.golang.org/grpc"}},
	{"scheduling, the runtime of Go", []string{"runtime.mcall", "runtime.mstart", "runtime.morestack", "runtime.goexit0"}},
	{"resource usage: cAdvisor, statistics, eviction", []string{"cadvisor", "/kubelet/stats", "/kubelet/server/stats", "/kubelet/eviction"}},
	{"all other", []string{""}},
}

// waitPurposes are what the goroutines that handle restarts wait for. Most goroutines
// are idle, and their waits do not count.
var waitPurposes = []purpose{
	{"a start waits for the runtime", []string{".startContainer"}},
	{"a removal waits for the runtime", []string{"newPodContainerDeletor"}},
	{"a sync waits for a relist of its pod", []string{".GetNewerThan"}},
	{"the relist of one pod waits for the runtime", []string{".(*GenericPLEG).relistPod"}},
	{"the relist of all pods waits for the runtime", []string{".(*GenericPLEG).Relist"}},
	{"a status waits for the API server or for kube-api-qps", []string{"/status.(*manager).syncPod"}},
	{"an event waits for the API server or for event-qps", []string{"record.recordToSink", "record.(*eventBroadcasterImpl).recordToSink"}},
}

// costs returns the milliseconds per restart for each purpose, from a CPU or block
// profile.
func costs(p *profile.Profile, purposes []purpose, restarts int) map[string]float64 {
	// The samples of both kinds of profiles have a count and then nanoseconds.
	const nanoseconds = 1
	costs := map[string]float64{}
	for _, s := range p.Sample {
		if i := slices.IndexFunc(purposes, func(p purpose) bool { return p.has(s) }); i >= 0 {
			costs[purposes[i].what] += float64(s.Value[nanoseconds]) / 1e6 / float64(max(restarts, 1))
		}
	}
	return costs
}

// has reports whether any of the functions is on the stack of a sample.
func (p purpose) has(s *profile.Sample) bool {
	return slices.ContainsFunc(s.Location, func(l *profile.Location) bool {
		return slices.ContainsFunc(l.Line, func(line profile.Line) bool {
			return slices.ContainsFunc(p.functions, func(f string) bool { return strings.Contains(line.Function.Name, f) })
		})
	})
}
