// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// most is how many entries a plan has at most.
const most = 100_000

var errTooLong = fmt.Errorf("the plan has more than %d lines: ask for less of the future, or for longer runs", most)

// least is how many entries the plan has at least, as far as that is known before: those of
// containers that restart for ever, whatever others do.
func (m *maker) least() (lines float64) {
	if m.Pod.DeletionTimestamp != nil || m.Pod.Spec.ActiveDeadlineSeconds != nil || slices.ContainsFunc(m.Pod.Status.Conditions, restarting) {
		return 0
	}
	length := m.For
	for i := range m.containers {
		c := &m.containers[i]
		instance := m.runtime.instances[c.Name]
		restarts := func(code int32) bool { return m.Gates.OnExit(c, code) == v1.ContainerRestartRuleActionRestart }
		lives, time := m.runtime.lives[c.Name], length
		life := lives[0]
		if after, ok := m.Recovers[c.Name]; ok {
			time = min(time, after)
		}
		switch {
		case len(c.Rules) > 0:
			return 0 // They may restart the pod.
		case c.Kind == restartpod.KindSidecar:
			// It ends with the other containers.
		case instance.State == restartpod.StateExited && instance.ExitCode == 0 && !restarts(0):
			// It is done.
		case (instance.State != restartpod.StateExited || restarts(instance.ExitCode)) && len(lives) == 1 && !life.Runs && restarts(life.Code):
			// An exit and a start. The mean of many runs is close to that of the distribution.
			lines += 2 * float64(time) / float64(max(life.Mean()+m.Curve.Max, 1))
			if c.Kind == restartpod.KindInit {
				return lines // What is after it waits.
			}
		case c.Kind == restartpod.KindInit:
			if time < length || life.Runs || life.Code != 0 || life.Spread != Fixed {
				return 0
			}
			length = max(length-life.After, 0)
		}
	}
	return lines
}
