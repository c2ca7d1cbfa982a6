// SPDX-License-Identifier: Apache-2.0

package restartpod

import "time"

// ExitPause is how long a stop after a failed probe or postStart hook waits for the
// container to exit by itself. A probe or a hook that runs in the container ends with it, and
// the runtime reports that before it notes the end of the container: some 20 ms
// before, and 250 ms on a busy node.
const ExitPause = time.Second

// stopSlack is added to the grace period, after which the runtime kills the container.
// It may take long on a busy node.
const stopSlack = time.Minute

// StopTime is the time in which a stop ends an instance, for
// restart.ContainerStatus.StoppedByAgent. An exit before it came before the stop began, and
// an exit after it has another cause: the agent ended before it stopped the instance.
// A zero From is no beginning, and a zero Until is no end.
type StopTime struct{ From, Until time.Time }

// NewStopTime returns the time of a stop that begins now, with the given grace period. last
// is that of the last stop of the instance, or zero. If now is in it, that stop may have
// ended the instance, and the new time begins with it.
func NewStopTime(last StopTime, now time.Time, grace time.Duration) StopTime {
	t := StopTime{now, now.Add(grace).Add(stopSlack)}
	if now.Before(last.Until) {
		t.From = last.From
	}
	return t
}

// Ends reports whether the stop may be the cause of an exit at a time. An unknown time is
// zero or the Unix epoch. A time without fractions is that of a runtime that knows only
// seconds.
func (t StopTime) Ends(exit time.Time) bool {
	if exit.Unix() <= 0 {
		return true
	}
	latest := exit
	if exit.Nanosecond() == 0 {
		latest = exit.Add(time.Second - 1)
	}
	return !latest.Before(t.From) && (t.Until.IsZero() || !exit.After(t.Until))
}
