// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// in returns a back-off that ends in the given number of seconds.
func in(seconds int) error {
	return NewBackoffError(ErrCrashLoopBackOff, now.Add(time.Duration(seconds)*time.Second))
}

func TestBackoffErrorUnwraps(t *testing.T) {
	err := fmt.Errorf("failed to start: %w", in(5))
	assert.ErrorIs(t, err, ErrCrashLoopBackOff)
	var b *BackoffError
	require.ErrorAs(t, err, &b)
	assert.Equal(t, now.Add(5*time.Second), b.BackoffTime())
	assert.EqualError(t, b, "CrashLoopBackOff")
}

func TestOnlyBackOff(t *testing.T) {
	waits, failed := NewBackoffError(ErrCrashLoopBackOff, at(1)), errors.New("failed")
	assert.False(t, OnlyBackOff(nil))
	assert.False(t, OnlyBackOff(failed))
	assert.False(t, OnlyBackOff(errors.Join(waits, failed)))
	assert.True(t, OnlyBackOff(waits))
	assert.True(t, OnlyBackOff(errors.Join(waits, fmt.Errorf("container a: %w", waits))))
	assert.True(t, OnlyBackOff(NewBackoffError(failed, at(1))), "it was logged when it failed")
}

// timed is an error with a time that is no BackoffError, such as that of
// pkg/kubelet/container.
type timed struct{ error }

func (timed) BackoffTime() time.Time { return at(3) }

func TestMinBackoffExpirationOfOtherErrors(t *testing.T) {
	err := fmt.Errorf("sync: %w", errors.Join(in(5), timed{errors.New("image")}))
	got, found := MinBackoffExpiration(err)
	require.True(t, found)
	assert.Equal(t, at(3), got)
	assert.True(t, OnlyBackOff(err))
}
