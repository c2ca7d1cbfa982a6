// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"errors"
	"time"
)

// NextSync returns the delay after now until the next sync of a pod whose sync
// failed with err. retry is the ordinary delay after an error, jitter included.
// resync is the longest delay for a back-off alone. NextSync corrects completeWork
// in pkg/kubelet/pod_workers.go, which adds up to half of the delay as jitter and
// lets a back-off postpone the retry of other errors.
//
// If err has only back-offs, the delay is the time until the earliest end, but at
// most resync. If err also has other errors, the delay is at most retry. exact is
// true if the delay ends with a back-off: a late sync then means a late restart.
func NextSync(err error, retry, resync time.Duration, now time.Time) (delay time.Duration, exact bool) {
	end, found, others := expiration(err)
	if !found {
		return retry, false
	}
	limit := resync
	if others {
		limit = min(limit, retry)
	}
	if delay = max(end.Sub(now), 0); delay > limit {
		return limit, false
	}
	return delay, true
}

// waitingError marks the error of a sync that changed nothing.
type waitingError struct{ error }

func (e waitingError) Unwrap() error { return e.error }

// Waiting marks err as the error of a pod's sync that changed nothing. Such a sync
// started, killed and configured nothing because everything left to do waits for a
// back-off. The state of the pod's newest instances from before the sync is then
// still valid.
func Waiting(err error) error {
	if err == nil {
		return nil
	}
	return waitingError{err}
}

// Changed removes the mark of Waiting from err. It is for a sync that changed
// something before the action that returned err.
func Changed(err error) error {
	for {
		w, marked := err.(waitingError)
		if !marked {
			return err
		}
		err = w.error
	}
}

// IsWaiting reports whether err was marked by Waiting. It is false for an error that
// joins a marked error with others: the sync may have changed something before those.
func IsWaiting(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if _, marked := err.(waitingError); marked {
			return true
		}
	}
	return false
}

// OnlyBackOff reports whether err, the error of a pod's sync, consists only of
// errors that are over at a known time. Such an error need not be reported. A
// start that failed is reported when it fails.
func OnlyBackOff(err error) bool {
	_, found, others := expiration(err)
	return found && !others
}

// ChangedNothing reports whether one action of a pod's sync, which returned err,
// left the pod unchanged. This is the case if a back-off prevented a start, or if
// the action only created the sandbox configuration. A start that failed changed
// something, although its error is a BackoffError too.
func ChangedNothing(action string, err error) bool {
	if err == nil {
		return action == "ConfigPodSandbox"
	}
	_, waits, others := expiration(err)
	return waits && !others && errors.Is(err, ErrCrashLoopBackOff)
}
