// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// maxEntries limits the entries of a plan. It is a variable because a test lowers it.
var maxEntries = 100_000

// tooLong returns the error for a plan with too many entries.
func tooLong(where string) error {
	return fmt.Errorf("%s the plan has more than %d lines: use a shorter --for, or longer runs", where, maxEntries)
}

// minEntries returns a lower bound for the number of entries, so that a plan that is too long fails
// at once. It counts only containers that restart until the end of the plan, whatever the other
// containers do.
func (m *maker) minEntries() (entries float64) {
	if m.Pod.DeletionTimestamp != nil || m.Pod.Spec.ActiveDeadlineSeconds != nil || slices.ContainsFunc(m.Pod.Status.Conditions, restarting) {
		return 0
	}
	length := m.For
	for i := range m.containers {
		c := &m.containers[i]
		instance := m.instances[c.Name]
		restarts := func(code int32) bool { return m.Gates.OnExit(c, code) == restartpod.ActionRestart }
		lives, time := m.lives[c.Name], length
		life := lives[0]
		if after, ok := m.Recovers[c.Name]; ok {
			time = min(time, after)
		}
		switch {
		case len(c.Rules) > 0:
			return 0 // The rules may restart the pod.
		case c.Kind == restartpod.KindSidecar:
			// A sidecar ends with the regular containers.
		case instance.State == restart.ContainerStateExited && instance.ExitCode == 0 && !restarts(0):
			// The container has succeeded.
		case (instance.State != restart.ContainerStateExited || restarts(instance.ExitCode)) && len(lives) == 1 && !life.Runs && restarts(life.Code):
			// Each run has two entries, a start and an exit. The average of many random times is
			// close to the mean.
			entries += 2 * float64(time) / float64(max(life.Mean()+m.Curve.Max, 1))
			if c.Kind == restartpod.KindInit {
				return entries // The containers after it do not start.
			}
		case c.Kind == restartpod.KindInit:
			if time < length || life.Runs || life.Code != 0 || life.Spread != Fixed {
				return 0
			}
			length = max(length-life.After, 0)
		}
	}
	return entries
}
