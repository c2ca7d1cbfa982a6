// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An exit from before the stop began, or from after its end, has another cause.
func TestStopTime(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC)
	stop := NewStopTime(StopTime{}, from, 30*time.Second)
	require.Equal(t, StopTime{from, from.Add(90 * time.Second)}, stop)
	require.Equal(t, StopTime{from, from.Add(179 * time.Second)}, NewStopTime(stop, from.Add(89*time.Second), 30*time.Second))
	require.Equal(t, StopTime{from.Add(90 * time.Second), from.Add(3 * time.Minute)}, NewStopTime(stop, from.Add(90*time.Second), 30*time.Second))
	for _, tc := range []struct {
		exit time.Time
		ends bool
	}{
		{time.Time{}, true},
		{time.Unix(0, 0), true},
		{from.Add(-time.Nanosecond), false},
		{from, true},
		{from.Truncate(time.Second), true}, // The runtime may know only the second.
		{from.Truncate(time.Second).Add(-time.Second), false},
		{stop.Until, true},
		{stop.Until.Add(time.Millisecond), false},
	} {
		require.Equal(t, tc.ends, stop.Ends(tc.exit), tc.exit)
		require.True(t, StopTime{}.Ends(tc.exit), tc.exit)
		require.Equal(t, tc.ends || tc.exit.After(stop.Until), StopTime{From: stop.From}.Ends(tc.exit), tc.exit)
		require.Equal(t, tc.ends || tc.exit.Before(stop.From), StopTime{Until: stop.Until}.Ends(tc.exit), tc.exit)
	}
}
