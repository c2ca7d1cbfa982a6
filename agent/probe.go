// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/manifest"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// prober probes one instance of a container.
type prober struct {
	// started is true from when the startup probe has passed, or there is none.
	started bool
	// failed is the probe that failed for good, and failedAs its name. Of either
	// kind none is run afterwards.
	failed   *v1.Probe
	failedAs string
	cancel   context.CancelFunc
}

const (
	startupProbe  = "Startup"
	livenessProbe = "Liveness"
)

func (p *prober) hasStarted() bool { return p != nil && p.started }

func (p *prober) hasFailed() bool { return p != nil && p.failed != nil }

// end ends the probes.
func (p *prober) end() {
	if p != nil {
		p.cancel()
	}
}

// newProber begins to probe the instance of a container of the pod with that IP:
// its startup probe until that has passed, then its liveness probe.
func (a *Agent) newProber(ctx context.Context, c *container, ip string) *prober {
	ctx, cancel := context.WithCancel(ctx)
	startup, liveness := c.spec.StartupProbe, c.spec.LivenessProbe
	p := &prober{cancel: cancel, started: startup == nil || a.startedBefore[c.instance.ID]}
	t := target{a, c, c.instance.ID, ip}
	startedAt := c.instance.StartedAt
	fail := func(probe *v1.Probe, name string) {
		a.call(ctx, func() { p.failed, p.failedAs = probe, name })
	}
	go func(started bool) {
		if !started {
			if !t.until(ctx, startup, startupProbe, startedAt, true) {
				fail(startup, startupProbe)
				return
			}
			a.call(ctx, func() { p.started = true })
		}
		if liveness != nil && !t.until(ctx, liveness, livenessProbe, startedAt, false) {
			fail(liveness, livenessProbe)
		}
	}(p.started)
	return p
}

// unfit returns with what grace period and message a container is to be killed
// whose probe has failed, or which the runtime does not know to run or to have
// ended. There is no message if it is fit, or is being stopped.
func (a *Agent) unfit(c *container) (grace time.Duration, message string) {
	seconds := *a.Pod.Spec.TerminationGracePeriodSeconds
	switch {
	case c.instance == nil, c.stop != nil && !c.stop.deadline.IsZero():
		return 0, ""
	case c.instance.State == restartpod.StateUnknown:
		return time.Duration(seconds) * time.Second, fmt.Sprintf("Container is in %q state, try killing it before restart", c.instance.State)
	case c.instance.State != restartpod.StateRunning, !c.probe.hasFailed():
		return 0, ""
	}
	grace = time.Duration(ptr.Deref(c.probe.failed.TerminationGracePeriodSeconds, seconds)) * time.Second
	message = fmt.Sprintf("Container %s failed %s probe", c.Name, strings.ToLower(c.probe.failedAs))
	switch {
	case c.Kind != restartpod.KindRegular:
		message = "Init c" + message[1:]
	case c.Policy != v1.ContainerRestartPolicyNever:
		message += ", will be restarted"
	}
	return grace, message
}

// target is an instance to probe.
type target struct {
	agent *Agent
	c     *container
	id    string
	ip    string
}

// until runs a probe until it has failed failureThreshold times in a row, or
// with once until it has succeeded, or ctx is done. It returns false when it has
// failed.
func (t target) until(ctx context.Context, probe *v1.Probe, name string, startedAt time.Time, once bool) bool {
	at := startedAt.Add(time.Duration(probe.InitialDelaySeconds) * time.Second)
	for failures := int32(0); ; at = at.Add(time.Duration(probe.PeriodSeconds) * time.Second) {
		now := time.Now()
		if at.Before(now) {
			at = now // A probe that took longer than the period puts off the next one.
		} else {
			select {
			case <-time.After(at.Sub(now)):
			case <-ctx.Done():
				return true
			}
		}
		output, ok, err := t.probe(ctx, probe)
		if ctx.Err() != nil {
			return true
		}
		recorder := t.agent.Recorder
		switch {
		case err != nil:
			recorder.Eventf(t.agent.ref(t.c), v1.EventTypeWarning, "Unhealthy", "%s probe errored and resulted in unknown state: %s", name, err)
		case ok && once:
			return true
		case ok:
			failures = 0
		default:
			recorder.Eventf(t.agent.ref(t.c), v1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", name, output)
			if failures++; failures >= probe.FailureThreshold {
				return false
			}
		}
	}
}

// probe runs a probe once. An error is neither success nor failure.
func (t target) probe(ctx context.Context, probe *v1.Probe) (output string, ok bool, err error) {
	timeout := time.Duration(probe.TimeoutSeconds) * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case probe.Exec != nil:
		out, code, err := t.agent.Runtime.Exec(ctx, t.id, manifest.Expand(probe.Exec.Command, t.c.spec.Env))
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Sprintf("command timed out after %v", timeout), false, nil
		}
		return string(out), code == 0, err
	case probe.HTTPGet != nil:
		return t.get(ctx, probe.HTTPGet)
	case probe.TCPSocket != nil:
		address, err := t.address(probe.TCPSocket.Host, probe.TCPSocket.Port)
		if err != nil {
			return "", false, err
		}
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err.Error(), false, nil
		}
		return "", true, connection.Close()
	}
	return "", false, errors.New("the probe has no handler")
}

// maxResponse is how much is read of the answer to a probe, as in
// pkg/probe/http.
const maxResponse = 10 << 10

func (t target) get(ctx context.Context, get *v1.HTTPGetAction) (output string, ok bool, err error) {
	address, err := t.address(get.Host, get.Port)
	if err != nil {
		return "", false, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(get.Scheme)), address
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", false, err
	}
	request.Header.Set("User-Agent", "kube-probe/1.37")
	request.Header.Set("Accept", "*/*")
	own := http.Header{}
	for _, h := range get.HTTPHeaders {
		own.Add(h.Name, h.Value)
	}
	for name, values := range own {
		request.Header[name] = values
	}
	if host := own.Get("Host"); host != "" {
		request.Host = host
	}
	client := &http.Client{
		// Certificates are not verified, and proxies not used, as by the kubelet.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			switch {
			case next.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse // It has answered: a success.
			case len(via) >= 10:
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error(), false, nil
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxResponse)); err != nil {
		return err.Error(), false, nil
	}
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode), false, nil
	}
	return "", true, nil
}

// address resolves a port of the container, by its name if it has one.
func (t target) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.ip
	}
	number := port.IntValue()
	if port.Type == intstr.String && number == 0 {
		for _, p := range t.c.spec.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return "", fmt.Errorf("container %s has no port %s", t.c.Name, port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// runHook runs a hook until ctx is done.
func (a *Agent) runHook(ctx context.Context, id string, hook *v1.LifecycleHandler) error {
	switch {
	case hook.Exec != nil:
		output, code, err := a.Runtime.Exec(ctx, id, hook.Exec.Command)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d: %s", code, output)
		}
		return err
	case hook.Sleep != nil:
		select {
		case <-time.After(time.Duration(hook.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}
