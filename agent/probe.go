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

// prober probes one instance of a container. It runs the startup probe until that has
// passed, and then the liveness probe.
type prober struct {
	// started is true if the startup probe has passed or there is none.
	started bool
	// failed is the probe that has reached its failure threshold, and failedAs is its
	// name in messages.
	failed   *v1.Probe
	failedAs string
	ended    bool
	// since is the time after which the next probe is due: the start of the instance or
	// of the last probe, or the success of the startup probe. failures counts the
	// consecutive failures.
	since    time.Time
	failures int32
	running  *attempt
}

// attempt is one run of a probe.
type attempt struct {
	cancel context.CancelCauseFunc
	// deadline is the time limit. It is zero if the type network enforces the limit.
	deadline time.Time
}

func (p *prober) hasStarted() bool { return p != nil && p.started }

func (p *prober) end() {
	if p == nil {
		return
	}
	p.ended = true
	if p.running != nil {
		p.running.cancel(nil)
		p.running = nil
	}
}

// runProbes runs the probes that are due. It returns the time of the next call, or zero.
func (a *Agent) runProbes(now time.Time) (next time.Time) {
	for i := range a.containers {
		next = earlier(next, a.probe(now, &a.containers[i]))
	}
	return next
}

// probe runs the probe of a container if it is due. It returns the time of the next call,
// or zero.
//
// The times are those of the worker in pkg/kubelet/prober. It ticks once per period after
// it first saw the pod, and probes an instance that was running before the tick and is
// past its initial delay. So the first probe runs within one period after the start. If a
// tick is missed during a probe, the next probe runs right after it. Here all workers
// tick together. In the first seconds after a restart of the kubelet, its workers start
// at random times within the period.
func (a *Agent) probe(now time.Time, c *container) (next time.Time) {
	p := c.probe
	if p == nil || p.ended || p.failed != nil {
		return time.Time{}
	}
	if p.running != nil {
		if now.Before(p.running.deadline) || p.running.deadline.IsZero() {
			return p.running.deadline
		}
		p.running.cancel(context.DeadlineExceeded)
		p.running.deadline = time.Time{}
		return time.Time{}
	}
	spec := c.spec.StartupProbe
	if p.started {
		spec = c.spec.LivenessProbe
	}
	if spec == nil {
		return time.Time{}
	}
	after := p.since
	if at := c.instance.StartedAt.Add(time.Duration(spec.InitialDelaySeconds)*time.Second - 1); at.After(after) {
		after = at
	}
	if due := tick(a.begun, seconds(spec.PeriodSeconds, 10), after); now.Before(due) {
		return due
	}
	p.since = now
	a.attempt(now, c, spec)
	return a.probe(now, c)
}

// tick returns the first tick after a time. The ticks are at begin and after every period.
func tick(begin time.Time, period time.Duration, after time.Time) time.Time {
	if after.Before(begin) {
		return begin
	}
	return begin.Add(after.Sub(begin).Truncate(period) + period)
}

func (a *Agent) attempt(now time.Time, c *container, spec *v1.Probe) {
	p, id, ip, timeout := c.probe, c.instance.ID, a.ip, seconds(spec.TimeoutSeconds, 1)
	ctx, cancel := context.WithCancelCause(a.ctx)
	timed := deadlineContext{ctx, now.Add(timeout)}
	try := &attempt{cancel: cancel}
	if a.o.Probe != nil || spec.Exec != nil || spec.GRPC != nil {
		try.deadline = timed.at
	}
	p.running = try
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
			if p.running == try {
				p.running = nil
				a.probed(c, spec, output, ok, err)
			}
		}
	})
}

func (a *Agent) probed(c *container, spec *v1.Probe, output string, ok bool, err error) {
	p, name := c.probe, "Startup"
	if p.started {
		name = "Liveness"
	}
	switch {
	case err != nil:
		a.event(c, v1.EventTypeWarning, "Unhealthy", "%s probe errored and resulted in unknown state: %s", name, err)
	case !ok:
		a.event(c, v1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", name, output)
		if p.failures++; p.failures >= cmp.Or(spec.FailureThreshold, 3) {
			p.failed, p.failedAs, a.again = spec, strings.ToLower(name), true
		}
	default:
		p.failures = 0
		if !p.started {
			p.started, p.since, a.again = true, a.now(), true
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
