// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// A pod whose regular containers have ended for good, or whose init container has failed
// for good, starts nothing: neither when the agent stops the sidecar, nor when that exits
// by itself, nor under the next agent.
func TestDonePodStartsNothing(t *testing.T) {
	sidecars := map[string]life{
		"stopped":           {takes: 5 * time.Second},
		"exits by itself":   {exits: true, code: 7, runs: 2 * time.Second, takes: 5 * time.Second},
		"stopped well":      {takes: 5 * time.Second, stopsWell: true},
		"stopped, by force": {takes: time.Hour},
	}
	for _, action := range []string{"RestartPod", "RestartAllContainers"} {
		for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure} {
			for name, sidecar := range sidecars {
				for _, killed := range []bool{false, true} {
					for ended, want := range map[string]v1.PodPhase{"main": v1.PodSucceeded, "setup": v1.PodFailed} {
						if ended == "setup" && policy != v1.RestartPolicyNever {
							continue // it would be restarted
						}
						t.Run(fmt.Sprintf("%s %s %s killed=%t %s", action, policy, name, killed, ended), func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) {
								n := newNode()
								n.lives = map[string][]life{"proxy": {sidecar}, "setup": {exits(0, 0)}, "main": {exits(0, time.Second)}}
								if ended == "setup" {
									n.lives["setup"] = []life{exits(1, time.Second)}
								}
								spec := fmt.Sprintf(`
restartPolicy: %s
terminationGracePeriodSeconds: 20
initContainers:
- {name: proxy, restartPolicy: Always, restartPolicyRules: [{action: %s, exitCodes: {operator: NotIn, values: [0]}}]}
- {name: setup}
containers: [{name: main}]`, policy, action)
								file := filepath.Join(t.TempDir(), "status.json")
								o := func(o *Options) { o.StatusFile = file }
								if killed {
									go n.agent(pod(t, spec), o).Run(t.Context())
									<-time.After(1500 * time.Millisecond)
									synctest.Wait()
									n.kill()
									<-time.After(time.Minute)
								}
								phase, trace := n.run(t, n.agent(pod(t, spec), o), time.Hour)
								require.Equal(t, want, phase)
								require.NotContains(t, trace, "#2")
								require.NotContains(t, trace, "PodRestarting")
							})
						})
					}
				}
			}
		}
	}
}

// The API accepts any number of seconds.
func TestLongestGracePeriod(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{0: 0, 30: 30 * time.Second, 10_000_000_000: 9223372036 * time.Second, math.MaxInt64: 9223372036 * time.Second} {
		n := newNode()
		a := n.agent(pod(t, fmt.Sprintf("{terminationGracePeriodSeconds: %d, containers: [{name: main}]}", seconds)))
		require.Equal(t, want, a.gracePeriod(nil))
		o := restartpod.Observation{Now: n.begin, GracePeriod: want, Containers: []restartpod.Container{{
			Name: "main", Kind: restartpod.KindRegular, Status: &restart.ContainerStatus{ID: "main#1", State: restart.ContainerStateRunning},
		}}}
		kills, _ := o.Stop(n.begin)
		require.Len(t, kills, 1)
		require.Equal(t, max(want, restartpod.MinimumGracePeriod), kills[0].Grace)
	}
}
