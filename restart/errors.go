// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"errors"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// ErrCrashLoopBackOff is wrapped by the BackoffError of DoBackOff. Its text is
// the reason of the container's waiting state.
var ErrCrashLoopBackOff = errors.New("CrashLoopBackOff")

// BackoffError is an error that is over at a known time. It corrects the type of
// the same name in pkg/kubelet/container, which errors.Is cannot unwrap.
type BackoffError struct {
	err         error
	backoffTime time.Time
}

// NewBackoffError returns a BackoffError that wraps err and is over at
// backoffTime.
func NewBackoffError(err error, backoffTime time.Time) *BackoffError {
	return &BackoffError{err: err, backoffTime: backoffTime}
}

// Error returns the text of the wrapped error, or a text that says that there is
// none.
func (e *BackoffError) Error() string {
	if e.err == nil {
		return "back-off"
	}
	return e.err.Error()
}

// Unwrap returns the wrapped error.
func (e *BackoffError) Unwrap() error { return e.err }

// BackoffTime returns the time at which the error is over.
func (e *BackoffError) BackoffTime() time.Time { return e.backoffTime }

// MinBackoffExpiration returns the earliest BackoffTime in the tree of err, and
// false if there is none. Any error with that method counts, also that of
// pkg/kubelet/container. MinBackoffExpiration does not look inside such an error.
// It corrects the function of the same name in pkg/kubelet/container, which
// returns the first time and not the earliest if errors.Join made err.
func MinBackoffExpiration(err error) (time.Time, bool) {
	earliest, found, _ := expiration(err)
	return earliest, found
}

// OnlyBackOff reports whether err, the error of a pod's sync, consists only of
// errors that MinBackoffExpiration finds. Such an error need not be reported: a start that failed is reported
// when it fails.
func OnlyBackOff(err error) bool {
	_, found, others := expiration(err)
	return found && !others
}

// expiration also reports whether the tree of err has other errors.
func expiration(err error) (earliest time.Time, found, others bool) {
	var inside []error
	switch e := err.(type) {
	case nil:
		return time.Time{}, false, false
	case *BackoffError:
		if e == nil {
			return time.Time{}, false, true
		}
		return e.backoffTime, true, false
	case interface{ BackoffTime() time.Time }:
		return e.BackoffTime(), true, false
	case utilerrors.Aggregate:
		inside = e.Errors()
	case interface{ Unwrap() []error }:
		inside = e.Unwrap()
	case interface{ Unwrap() error }:
		if wrapped := e.Unwrap(); wrapped != nil {
			return expiration(wrapped)
		}
	}
	if len(inside) == 0 {
		return time.Time{}, false, true
	}
	for _, e := range inside {
		t, f, o := expiration(e)
		if f && (!found || t.Before(earliest)) {
			earliest, found = t, true
		}
		others = others || o
	}
	return earliest, found, others
}
