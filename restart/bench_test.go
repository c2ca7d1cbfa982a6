// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"testing"
	"time"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// The cost that keeping and measuring a back-off adds to a restart: the annotation, a
// lookup of it in each of the three syncs of a restart, and the metrics. The
// benchmark of the decision alone is for comparison.
func BenchmarkRestart(b *testing.B) {
	curve := backoff.Curve{Initial: time.Second, Max: time.Second}
	for name, with := range map[string]bool{"decision": false, "kept and measured": true} {
		b.Run(name, func(b *testing.B) {
			a := newAgent(b)
			a.backOff = NewBackOff(nil, curve)
			if with {
				a.backOff.SetMetrics(&delays{})
			}
			container := &a.pod.Spec.Containers[0]
			statuses := []ContainerStatus{exited(1, 0)}
			now := at(0)
			for range b.N {
				statuses[0].StartedAt, statuses[0].FinishedAt = now, now
				now = now.Add(time.Second)
				if with {
					for range 3 {
						RestoreBackOff(a.pod, container, statuses, a.backOff, now)
					}
				}
				if waits, _, _ := DoBackOff(context.Background(), nil, a.pod, container, statuses, a.backOff, now); waits {
					b.Fatal("waits")
				}
				if with {
					statuses[0].BackOff = SaveBackOff(a.backOff, Key(a.pod, container), now)
				}
			}
		})
	}
}
