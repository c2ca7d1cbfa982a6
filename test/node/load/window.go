// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// idle records what the API server has to do before there are crashing pods.
func (m *measurement) idle() error {
	if err := m.wait(settling, func() error { return nil }); err != nil {
		return err
	}
	requests, _, err := m.countRequests()
	if err != nil {
		return err
	}
	from, err := m.sampleOnce()
	if err != nil {
		return err
	}
	for range healthyPodsOnIdle {
		if err := m.createHealthy(true); err != nil {
			return err
		}
		if err := m.wait(healthyEvery, m.deleteHealthyPods); err != nil {
			return err
		}
	}
	to, err := m.sampleOnce()
	if err != nil {
		return err
	}
	m.run.Idle = Idle{Seconds: to.At.Sub(from.At).Seconds(), APIServer: to.APIServer - from.APIServer}
	m.run.Idle.Requests, _, err = m.requestsSince(requests)
	return err
}

// countRequests returns the requests so far, for requestsSince, and their durations.
func (m *measurement) countRequests() (map[string]float64, figures.Durations, error) {
	m.own = map[string]float64{}
	return figures.Requests(m.Context(), m.api)
}

// requestsSince returns the kubelets' requests since the last count, which is before, and all durations so far.
func (m *measurement) requestsSince(before map[string]float64) (map[string]float64, figures.Durations, error) {
	last, durations, err := figures.Requests(m.Context(), m.api)
	if err != nil {
		return nil, durations, err
	}
	requests := figures.Increase(before, last)
	for kind, n := range m.own {
		if requests[kind] -= n; requests[kind] <= 0 {
			delete(requests, kind)
		}
	}
	return requests, durations, nil
}

// warmUp waits until every container has started, and every crashing one has restarted
// twice. The second restart has a delay.
func (m *measurement) warmUp() error {
	said := time.Now()
	if err := harness.Await(m.Context(), "the second restart of every container that crashes", 5*time.Minute, func(context.Context) error {
		if err := m.deleteHealthyPods(); err != nil {
			return err
		}
		starts, ready, crashing := m.starts(), 0, 0
		for _, n := range starts {
			if n > 2 {
				crashing++
			}
			if n > 0 {
				ready++
			}
		}
		if m.Scenario.Mix == onDependent {
			crashing = m.Scenario.crashing()
		}
		if ready == m.Scenario.mains() && crashing >= m.Scenario.crashing() {
			return nil
		}
		err := fmt.Errorf("%d of %d containers have started, %d of %d were restarted twice", ready, m.Scenario.mains(), crashing, m.Scenario.crashing())
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			m.say("%v", err)
		}
		return err
	}); err != nil {
		return err
	}
	return m.wait(settling, m.deleteHealthyPods)
}

// window records the measuring window.
func (m *measurement) window() error {
	requests, durations, err := m.countRequests()
	if err != nil {
		return err
	}
	metrics, err := m.metrics()
	if err != nil {
		return err
	}
	calls, err := m.calls()
	if err != nil {
		return err
	}
	m.say("measuring for %v", m.Scenario.Window)
	stop := m.sample()
	m.run.From = time.Now()
	created, heap := time.Now(), time.Now()
	do := func() error {
		if time.Since(created) >= healthyEvery {
			created = created.Add(healthyEvery)
			if err := m.createHealthy(false); err != nil {
				return err
			}
		}
		if time.Since(heap) >= heapSampling {
			heap = heap.Add(heapSampling)
			if _, err := m.metrics(); err != nil {
				return err
			}
		}
		return m.deleteHealthyPods()
	}
	if m.Scenario.Mix == onDependent {
		err = m.herd(do)
	} else {
		err = m.wait(m.Scenario.Window, do)
	}
	m.run.To = time.Now()
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	after, err := m.calls()
	if err != nil {
		return err
	}
	m.run.Calls = map[string]memcri.Calls{}
	for method, c := range after {
		if before := calls[method]; c.Count > before.Count {
			m.run.Calls[method] = memcri.Calls{Count: c.Count - before.Count, Seconds: c.Seconds - before.Seconds}
		}
	}
	last, err := m.metrics()
	if err != nil {
		return err
	}
	m.run.Metrics = figures.Increase(metrics, last)
	var answered figures.Durations
	m.run.Requests, answered, err = m.requestsSince(requests)
	m.run.RequestMedian, m.run.RequestP99 = answered.Quantile(0.5, durations), answered.Quantile(0.99, durations)
	return err
}

// herd removes the dependency, adds it again, and waits until all pods run and the
// kubelet has reported that.
func (m *measurement) herd(do func() error) error {
	if err := m.setDependency(false); err != nil {
		return err
	}
	if err := m.wait(m.Scenario.Window, do); err != nil {
		return err
	}
	m.run.Back = time.Now()
	if err := m.setDependency(true); err != nil {
		return err
	}
	limit := time.Now().Add(2*m.Scenario.Maximum + 2*time.Minute)
	for running := 0; running < m.Scenario.mains(); running = countRunning(m.run.Journal, m.Scenario) {
		if time.Now().After(limit) {
			return fmt.Errorf("%d of %d containers run %v after the dependency came back", running, m.Scenario.mains(), time.Since(m.run.Back))
		}
		if err := m.wait(sampling, do); err != nil {
			return err
		}
	}
	return m.wait(telling, do)
}

// awaitHealthyPods waits until all healthy pods have started.
func (m *measurement) awaitHealthyPods() error {
	return harness.Await(m.Context(), "the start of the last healthy pods", 30*time.Second, func(context.Context) error {
		if err := m.deleteHealthyPods(); err != nil {
			return err
		}
		m.run.End = time.Now()
		if left := len(m.run.HealthyPods) - m.deleted; left > 0 {
			return fmt.Errorf("%d have not started", left)
		}
		return nil
	})
}
