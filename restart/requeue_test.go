// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

func TestNextSync(t *testing.T) {
	const retry, resync = 10 * time.Second, 60 * time.Second
	other := errors.New("CreateContainerConfigError")
	aggregate := func(errs ...error) error { return utilerrors.NewAggregate(errs) }
	tests := []struct {
		name  string
		err   error
		delay time.Duration
		exact bool
		// earliest is when the first back-off ends, in seconds, or -1000.
		earliest int
	}{
		{"ordinary error", other, retry, false, -1000},
		{"ordinary errors", aggregate(other, other), retry, false, -1000},
		{"back-off", in(20), 20 * time.Second, true, 20},
		{"back-off inside", fmt.Errorf("failed: %w", in(20)), 20 * time.Second, true, 20},
		{"back-off at its end", in(0), 0, true, 0},
		{"back-off in the past", in(-5), 0, true, -5},
		{"back-off of just the resync interval", in(60), resync, true, 60},
		{"back-off longer than the resync interval", in(300), resync, false, 300},
		{"two back-offs", aggregate(in(20), in(15)), 15 * time.Second, true, 15},
		{"nested", aggregate(fmt.Errorf("failed: %w", aggregate(in(30), in(25))), in(40)), 25 * time.Second, true, 25},
		{"joined", errors.Join(in(20), in(12)), 12 * time.Second, true, 12},
		{"joined with another", errors.Join(in(20), other), retry, false, 20},
		{"another first, its retry sooner", aggregate(other, in(300)), retry, false, 300},
		{"another last, its retry sooner", aggregate(in(11), other), retry, false, 11},
		{"another, the back-off sooner", aggregate(other, in(7)), 7 * time.Second, true, 7},
		{"another, wrapped", fmt.Errorf("failed: %w", aggregate(in(300), fmt.Errorf("failed: %w", other))), retry, false, 300},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			delay, exact := NextSync(tc.err, retry, resync, now)
			assert.Equal(t, tc.delay, delay)
			assert.Equal(t, tc.exact, exact)
			earliest, found := MinBackoffExpiration(tc.err)
			assert.Equal(t, tc.earliest != -1000, found)
			if found {
				assert.Equal(t, now.Add(time.Duration(tc.earliest)*time.Second), earliest)
			}
		})
	}
	_, found := MinBackoffExpiration(nil)
	assert.False(t, found)
}

// A retry with jitter must not delay a sync past the end of a back-off.
func TestNextSyncNeverLate(t *testing.T) {
	err := errors.Join(in(11), errors.New("other"))
	delay, exact := NextSync(err, 14*time.Second, time.Minute, now)
	assert.Equal(t, 11*time.Second, delay)
	assert.True(t, exact)
}

// A retry later than the resync does not postpone that.
func TestNextSyncIsAtMostTheResync(t *testing.T) {
	err := errors.Join(in(300), errors.New("other"))
	delay, exact := NextSync(err, 90*time.Second, time.Minute, now)
	assert.Equal(t, time.Minute, delay)
	assert.False(t, exact)
}
