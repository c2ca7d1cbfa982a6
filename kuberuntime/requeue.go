// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"errors"
	"time"
)

// NextSync returns how long after now to sync a pod again whose sync failed
// with err, where retry is the ordinary delay after an error, jitter included,
// and resync the longest that a back-off alone puts a sync off. It corrects
// completeWork in pkg/kubelet/pod_workers.go, which adds up to half of the
// delay to it and lets a back-off put off the retry of other errors.
//
// A back-off alone gives the time until its end, at most resync. With other
// errors beside it the earlier of that and retry counts. The result exact is
// true when the delay ends with a back-off, so that being late is being late
// for a restart.
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

// Waiting marks err, the error of a pod's sync, as that of one which started,
// killed and configured nothing because all that it had to do has to wait for a
// back-off. What was known of the pod's newest instances before such a sync is
// still true after it.
func Waiting(err error) error {
	if err == nil {
		return nil
	}
	return waitingError{err}
}

// Changed takes the mark of Waiting off err, for a sync that changed something before
// it came to what err is about.
func Changed(err error) error {
	if w, ok := err.(waitingError); ok {
		return w.error
	}
	return err
}

// IsWaiting reports whether err was marked by Waiting.
func IsWaiting(err error) bool {
	var w waitingError
	return errors.As(err, &w)
}

// OnlyBackOff reports whether all that is wrong by err, the error of a pod's sync,
// goes away by itself at a known time: nobody has to be told of an error. A start
// that failed is reported when it fails.
func OnlyBackOff(err error) bool {
	_, found, others := expiration(err)
	return found && !others
}

// ChangedNothing reports whether one action of a pod's sync, which ended with
// err, left the pod as it was: it did not start because of a back-off, or it
// was the making of the sandbox configuration, which has no effect. A start that
// failed changed something, although its error is a BackoffError too.
func ChangedNothing(action string, err error) bool {
	if err == nil {
		return action == "ConfigPodSandbox"
	}
	_, waits, others := expiration(err)
	return waits && !others && errors.Is(err, ErrCrashLoopBackOff)
}
