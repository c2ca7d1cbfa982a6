// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/expand"
)

// The kinds of probes.
const (
	startup = iota
	liveness
	readiness
	kinds // the number of kinds
)

// prober probes one instance of a container. It runs the startup probe until that has
// passed, and then the liveness and the readiness probe.
type prober struct {
	// started is true if the startup probe has passed or there is none. ready is the result
	// of the readiness probe, or true if there is none.
	started, ready bool
	// failed is the startup or liveness probe that has reached its failure threshold, and
	// failedAs is its name in messages.
	failed   *v1.Probe
	failedAs string
	workers  [kinds]worker
}

// worker runs the probes of one kind.
type worker struct {
	ended bool
	// since is the time after which the next probe is due: the end of the initial delay,
	// of the postStart hook or of the startup probe, or the start of the last probe. The
	// last results, run of them, were all ok.
	since   time.Time
	ok      bool
	run     int32
	running *attempt
}

// attempt is one run of a probe.
type attempt struct {
	cancel context.CancelCauseFunc
	// deadline is the time limit. It is zero if the type network enforces the limit.
	deadline time.Time
}

func (p *prober) hasStarted() bool { return p != nil && p.started }

// newProber returns the prober of an instance that is running, after its postStart hook.
func (a *Agent) newProber(c *container) *prober {
	before := a.before[c.instance.ID]
	p := &prober{started: c.spec.StartupProbe == nil || ptr.Deref(before.Started, false), ready: c.spec.ReadinessProbe == nil || before.Ready}
	since := c.instance.StartedAt
	if c.hook != nil {
		since = a.now()
	}
	for kind, spec := range c.probes() {
		p.workers[kind].since = since
		// A tick at the end of the initial delay counts.
		if at := c.instance.StartedAt.Add(initialDelay(spec) - 1); at.After(since) {
			p.workers[kind].since = at
		}
	}
	return p
}

// probes returns the probes of a container by their kinds.
func (c *container) probes() [kinds]*v1.Probe {
	return [kinds]*v1.Probe{c.spec.StartupProbe, c.spec.LivenessProbe, c.spec.ReadinessProbe}
}

func initialDelay(spec *v1.Probe) time.Duration {
	return time.Duration(ptr.Deref(spec, v1.Probe{}).InitialDelaySeconds) * time.Second
}

// end ends the probes of all kinds below n.
func (p *prober) end(n int) {
	if p == nil {
		return
	}
	for i := range n {
		w := &p.workers[i]
		w.ended = true
		if w.running != nil {
			w.running.cancel(nil)
			w.running = nil
		}
	}
}

// runProbes runs the probes that are due. It returns the time of the next call, or zero.
func (a *Agent) runProbes(now time.Time) (next time.Time) {
	for i := range a.containers {
		if c := &a.containers[i]; c.probe != nil {
			for kind, spec := range c.probes() {
				next = earlier(next, a.probe(now, c, kind, spec))
			}
		}
	}
	return next
}

// probe runs a probe of a container if it is due. It returns the time of the next call,
// or zero.
//
// The times are those of the worker in pkg/kubelet/prober. It ticks once per period after
// it first saw the pod, and probes an instance that was running before the tick and is
// past its initial delay. So the first probe runs within one period after the start. If a
// tick is missed during a probe, the next probe runs right after it. Here all workers
// tick together. In the first seconds after a restart of the kubelet, its workers start
// at random times within the period. The kubelet also probes a container that is not ready
// at each sync of its pod; here only the success of the startup probe does that.
func (a *Agent) probe(now time.Time, c *container, kind int, spec *v1.Probe) (next time.Time) {
	p, w := c.probe, &c.probe.workers[kind]
	if spec == nil || w.ended || p.started == (kind == startup) {
		return time.Time{}
	}
	// The clock may have stepped back.
	w.since = earlier(w.since, now.Add(initialDelay(spec)))
	if try := w.running; try != nil {
		if try.deadline.IsZero() {
			return time.Time{}
		}
		if try.deadline = earlier(try.deadline, now.Add(seconds(spec.TimeoutSeconds, 1))); now.Before(try.deadline) {
			return try.deadline
		}
		try.cancel(context.DeadlineExceeded)
		try.deadline = time.Time{}
		return time.Time{}
	}
	if due := tick(a.begun, seconds(spec.PeriodSeconds, 10), w.since); now.Before(due) {
		return due
	}
	a.attempt(now, c, kind, spec)
	return a.probe(now, c, kind, spec)
}

// tick returns the first tick after a time. The ticks are at begin and after every period.
func tick(begin time.Time, period time.Duration, after time.Time) time.Time {
	if after.Before(begin) {
		return begin
	}
	return begin.Add(after.Sub(begin).Truncate(period) + period)
}

func (a *Agent) attempt(now time.Time, c *container, kind int, spec *v1.Probe) {
	w, id, ip, timeout := &c.probe.workers[kind], c.instance.ID, a.ip, seconds(spec.TimeoutSeconds, 1)
	ctx, cancel := context.WithCancelCause(a.ctx)
	timed := deadlineContext{ctx, now.Add(timeout)}
	try := &attempt{cancel: cancel}
	if a.o.Probe != nil || spec.Exec != nil || spec.GRPC != nil {
		try.deadline = timed.at
	}
	w.since, w.running = now, try
	a.spawn(func() func() {
		var output string
		var ok bool
		var err error
		switch {
		case a.o.Probe != nil:
			output, ok, err = a.o.Probe(timed, id, spec)
		case spec.Exec != nil:
			var bytes []byte
			var code int
			bytes, code, err = a.o.Runtime.Exec(timed, id, expand.All(spec.Exec.Command, c.spec.Env))
			output, ok = string(bytes), code == 0
		case spec.GRPC != nil && a.o.GRPC != nil:
			output, ok, err = a.o.GRPC(timed, net.JoinHostPort(ip, strconv.Itoa(int(spec.GRPC.Port))), ptr.Deref(spec.GRPC.Service, ""))
		default:
			output, ok, err = network{ctx, a.o.Runtime, ip, c.spec.Ports, timeout}.probe(spec)
		}
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			output, ok, err = fmt.Sprintf("command timed out after %v", timeout), false, nil
		}
		cancel(nil)
		return func() {
			if w.running == try {
				w.running = nil
				a.probed(c, kind, spec, output, ok, err)
			}
		}
	})
}

func (a *Agent) probed(c *container, kind int, spec *v1.Probe, output string, ok bool, err error) {
	p, w, name := c.probe, &c.probe.workers[kind], [kinds]string{"Startup", "Liveness", "Readiness"}[kind]
	if err != nil {
		a.event(c, v1.EventTypeWarning, "Unhealthy", "%s probe errored and resulted in unknown state: %s", name, err)
		return
	}
	threshold := max(spec.SuccessThreshold, 1)
	if !ok {
		a.event(c, v1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", name, output)
		threshold = cmp.Or(spec.FailureThreshold, 3)
	}
	if w.run++; w.ok != ok {
		w.ok, w.run = ok, 1
	}
	switch {
	case w.run < threshold:
	case kind == readiness:
		a.again = a.again || p.ready != ok
		p.ready = ok
	case !ok:
		p.failed, p.failedAs, a.again = spec, strings.ToLower(name), true
		p.end(readiness)
	case kind == startup:
		now := a.now()
		p.started, a.again = true, true
		if w := &p.workers[liveness]; w.since.Before(now) {
			w.since = now
		}
		if r := c.spec.ReadinessProbe; r != nil && p.workers[readiness].since.Before(now) {
			a.attempt(now, c, readiness, r)
		}
	}
}

// deadlineContext is a context with a deadline in the time of the agent's clock. The
// agent cancels the context at the deadline.
type deadlineContext struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context. Runtimes may pass the deadline on.
func (c deadlineContext) Deadline() (time.Time, bool) { return c.at, true }
