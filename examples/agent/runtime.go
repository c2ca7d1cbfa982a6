// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// fakeRuntime stands for a container runtime. A container runs for a tenth of a second and exits with the next of its
// codes; when there is none left, it runs on.
type fakeRuntime struct {
	clock  clock.Clock
	began  time.Time
	out    io.Writer
	codes  map[string][]int32
	newest map[string]*restartpod.Status
	starts int
}

func (r *fakeRuntime) say(format string, args ...any) {
	fmt.Fprintf(r.out, "%.1fs %s\n", r.clock.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

func (r *fakeRuntime) start(name string, now time.Time) error {
	r.starts++
	r.newest[name] = &restartpod.Status{ID: fmt.Sprint(r.starts), State: restartpod.StateRunning, Started: true, StartedAt: now}
	r.say("%s starts", name)
	return nil
}

func (r *fakeRuntime) exit(name string, code int32) {
	s := r.newest[name]
	s.State, s.ExitCode, s.FinishedAt = restartpod.StateExited, code, r.clock.Now()
	r.say("%s exits with %d", name, code)
}

// wait waits until then, or until a container exits.
func (r *fakeRuntime) wait(until time.Time) {
	exits := ""
	for name, s := range r.newest {
		at := s.StartedAt.Add(100 * time.Millisecond)
		if s.State == restartpod.StateRunning && len(r.codes[name]) > 0 && !at.After(until) {
			until, exits = at, name
		}
	}
	r.clock.Sleep(until.Sub(r.clock.Now()))
	if exits != "" {
		code := r.codes[exits][0]
		r.codes[exits] = r.codes[exits][1:]
		r.exit(exits, code)
	}
}
