// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// encode appends everything in the state that affects its future. Times are
// relative to now, and all times beyond a certain age are equal.
func (st *state) encode(b []byte, tick time.Duration) []byte {
	oldest := st.reset/tick + 2
	age := func(t time.Time) byte {
		if t.IsZero() {
			return 255
		}
		return byte(min(st.now.Sub(t)/tick, oldest))
	}
	flag := func(v bool, bit int) byte {
		if v {
			return 1 << bit
		}
		return 0
	}
	// only returns the age of a time that matters, and a fixed value for any
	// other.
	only := func(matters bool, t time.Time) byte {
		if !matters {
			return 0
		}
		return age(t)
	}
	m := &st.machine
	terminating := m.phase == PhaseTerminatingForRestart
	// Conditions are read only after a crash.
	crashes := st.crashes > 0
	written := time.Time{}
	for i := range st.conditions {
		c := &st.conditions[i]
		isTrue := c.Status == v1.ConditionTrue
		if isTrue {
			written = c.LastTransitionTime.Time
		}
		if crashes {
			b = append(b, flag(isTrue, 0)|flag(c.Status == "", 1)|flag(c.Reason == ReasonPodFailed, 2))
		}
	}
	ended := 0
	if st.triggered {
		ended = st.endedAt().Compare(st.triggeredAt)
	}
	b = append(b, m.phase[0], byte(len(m.conditions)),
		only(terminating, m.since), only(terminating, m.stopSince), only(terminating && !m.passed, m.exitedAt), only(crashes, written),
		flag(m.passed, 0)|flag(st.backoffSet, 1)|flag(st.sandboxLost, 2)|flag(st.deleted, 3)|
			flag(st.triggered, 4)|flag(st.ambiguous, 5)|flag(st.written(m.conditions), 6)|flag(st.byTrigger, 7),
		byte(st.generation), byte(min(st.inARow, 3)), only(st.triggered, st.triggeredAt), only(st.inARow > 0, st.startedUpAt),
		byte(st.exits), byte(st.crashes), byte(st.deletions), byte(st.lostWrites), byte(st.lostSandboxes), byte(st.stops),
		flag(st.ended, 0)|flag(st.now.Nanosecond() > 0, 1)|flag(st.restartAt.Unix() == m.since.Unix(), 2)|flag(st.finished, 3)|
			flag(ended > 0, 4)|flag(st.triggered && ended == 0, 5))
	if st.backoffSet {
		b = append(b, byte(min(st.backoff.Attempts, 3)), age(st.backoff.LastUpdate), age(st.backoff.WaitingSince))
	}
	for i := range st.template {
		c := &st.containers[i]
		if c.number == 0 {
			b = append(b, 0)
			continue
		}
		old := slices.Contains(m.previous, st.ids[i][c.number])
		b = append(b, 1, c.state[0], byte(c.code), only(st.triggers(i) && (c.generation == st.generation || crashes), c.finishedAt),
			flag(c.started, 0)|flag(c.killing, 1)|flag(c.plannedExit, 2)|flag(old, 3)|
				flag(c.generation == st.generation, 4)|
				flag(crashes && c.startedAt.Unix() < written.Unix(), 5)|
				flag(crashes && c.startedAt.Unix() == written.Unix(), 6)|
				flag(crashes && c.startedAt.Unix() <= m.since.Unix(), 7),
			flag(c.byAgent, 0)|flag(c.previous, 1)|flag(crashes && c.startedAt.Unix() <= st.restartAt.Unix(), 2)|
				flag(crashes && tick < time.Second && c.startedAt.After(m.since), 3))
	}
	return b
}
