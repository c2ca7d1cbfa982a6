// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// journal returns the events that the pod's containers have written so far.
func (p *pod) journal() []harness.JournalEvent {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "journal"))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(p.t, err)
	}
	events, err := harness.ParseJournal(text)
	require.NoError(p.t, err)
	return events
}

// starts returns the number of starts of a container.
func (p *pod) starts(name string) int { return p.startsBefore(name, math.Inf(1)) }

// startsBefore returns the number of starts of a container before a time in seconds.
func (p *pod) startsBefore(name string, at float64) (n int) {
	for _, e := range p.journal() {
		if e.Container == name && e.Event == "start" && e.At < at {
			n++
		}
	}
	return n
}

// assertStarts checks the number of starts of each container. It waits for them, because
// a container may write its line after the API shows it as running.
func (p *pod) assertStarts(want map[string]int) {
	p.t.Helper()
	got := map[string]int{}
	_ = harness.Await(p.ctx, "the starts", patience, func(context.Context) error {
		for name := range want {
			got[name] = p.starts(name)
		}
		if !maps.Equal(got, want) {
			return errors.New("not yet")
		}
		return nil
	})
	assert.Equal(p.t, want, got, "starts of the containers")
}

// times returns the times of an event of the n-th instance of a container.
func (p *pod) times(name string, n int, event string) (at []float64) {
	for _, e := range p.journal() {
		if e.Container == name && e.Start == n && e.Event == event {
			at = append(at, e.At)
		}
	}
	return at
}

// event waits for an event of the n-th instance of a container and returns its time.
func (p *pod) event(name string, n int, event string) float64 {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		if at := p.times(name, n, event); len(at) > 0 {
			return at[0]
		}
		if time.Now().After(deadline) || p.ctx.Err() != nil {
			require.NoError(p.t, context.Cause(p.ctx))
			require.Fail(p.t, fmt.Sprintf("pod %s: start %d of %s had no %q within %v", p.name, n, name, event, patience))
		}
		// The interval is shorter than that of await, because the caller acts at once.
		time.Sleep(5 * time.Millisecond)
	}
}

// assertOrder checks the order of events, each "container start event". Of a start it takes
// the time when the runtime had created the instance: the program of an earlier instance
// may write its line later than that of the next one.
func (p *pod) assertOrder(events ...string) {
	p.t.Helper()
	last, at := "", 0.0
	for _, what := range events {
		f := strings.Fields(what)
		n, err := strconv.Atoi(f[1])
		require.NoError(p.t, err)
		// A container may be running before its program has written the event.
		now := p.event(f[0], n, f[2])
		if f[2] == "start" {
			now = float64(p.instance(f[0], n, false).created.UnixMicro()) / 1e6
		}
		assert.GreaterOrEqual(p.t, now, at, "%q came before %q", what, last)
		last, at = what, now
	}
}
