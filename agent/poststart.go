// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// startHook is the postStart hook of an instance. As in the kubelet, the container has
// not started until the hook has ended, and no other container starts before that.
type startHook struct {
	begun, ended, failed bool
	until                time.Time // The end of a sleep hook.
	cancel               context.CancelFunc
}

// end cancels a hook that has begun: a hook must not outlive its instance.
func (h *startHook) end() {
	if h != nil && h.cancel != nil {
		h.cancel()
	}
}

// running reports whether h is a hook that has not ended.
func (h *startHook) running() bool { return h != nil && !h.ended }

// succeeded reports whether h is a hook that has succeeded, or none.
func (h *startHook) succeeded() bool { return h == nil || h.ended && !h.failed }

// observeHook starts the hook of a new instance, or drops the hook of an earlier one.
func (a *Agent) observeHook(c *container) {
	h := c.hook
	if h == nil || h.begun || c.instance.State != restart.ContainerStateRunning {
		h.end()
		c.hook = nil
		return
	}
	h.begun = true
	hook, id, ip := c.spec.Lifecycle.PostStart, c.instance.ID, a.ip
	if hook.Sleep != nil {
		h.until = a.now().Add(longSeconds(hook.Sleep.Seconds))
		return
	}
	ctx, cancel := context.WithCancel(a.starting)
	h.cancel = cancel
	a.spawn(func() func() {
		err := a.runHook(ctx, c, id, ip, hook)
		cancel()
		return func() {
			h.ended, h.failed, a.again = true, err != nil, true
		}
	})
}

// awaitHooks ends the sleep hooks whose time is over. It returns the end of the next
// one, or zero.
func (a *Agent) awaitHooks(now time.Time) (next time.Time) {
	for i := range a.containers {
		c := &a.containers[i]
		if h := c.hook; h.running() && !h.until.IsZero() {
			h.until = earlier(h.until, now.Add(longSeconds(c.spec.Lifecycle.PostStart.Sleep.Seconds))) // The clock may have stepped back.
			if h.ended = !now.Before(h.until); h.ended {
				a.again = true
				continue
			}
			next = earlier(next, h.until)
		}
	}
	return next
}

// runHook runs an exec or httpGet hook.
func (a *Agent) runHook(ctx context.Context, c *container, id, ip string, hook *v1.LifecycleHandler) error {
	switch {
	case hook.HTTPGet != nil:
		_, err := network{ctx: ctx, runtime: a.o.Runtime, ip: ip, ports: c.spec.Ports}.request(hook.HTTPGet)
		return err
	case hook.Exec == nil:
		return errors.New("the hook has no handler")
	}
	output, code, err := a.o.Runtime.Exec(ctx, id, hook.Exec.Command)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, output)
	}
	return err
}
