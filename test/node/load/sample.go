// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// sample records the resource use of processes until stop is called.
func (m *measurement) sample() (stop func() error) {
	ctx, cancel := context.WithCancel(m.Context())
	done := make(chan error, 1)
	go func() {
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for {
			s, err := m.sampleOnce()
			if err != nil {
				done <- err
				return
			}
			m.run.Samples = append(m.run.Samples, s)
			if ctx.Err() != nil {
				done <- nil
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() error {
		cancel()
		return <-done
	}
}

func (m *measurement) sampleOnce() (s Sample, err error) {
	s.At = time.Now()
	add := func(to *float64, from func(int) (float64, error), p *harness.Process) {
		value, failed := from(p.PID())
		*to += value
		err = errors.Join(err, failed)
	}
	for _, n := range m.nodes {
		add(&s.Kubelet, figures.CPU, n.kubelet)
		add(&s.KubeletMemory, figures.Memory, n.kubelet)
		add(&s.Runtime, figures.CPU, n.runtime)
	}
	add(&s.APIServer, figures.CPU, m.api.Process)
	add(&s.APIServerMemory, figures.Memory, m.api.Process)
	if err != nil {
		return s, err
	}
	s.All, s.Stolen, err = figures.Busy()
	return s, err
}

// fromKubelet sends a kubelet's server a request.
func (m *measurement) fromKubelet(n *node, path string, use func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(m.Context(), http.MethodGet, n.url+path, nil)
	if err != nil {
		return err
	}
	answer, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return use(answer.Body)
}

// metrics returns how often the kubelets have synced pods and listed containers, and
// how many seconds their API requests have waited. It also updates the maximum of the
// heap.
func (m *measurement) metrics() (map[string]float64, error) {
	sums := map[string]float64{}
	for _, n := range m.nodes {
		if err := m.fromKubelet(n, "/metrics", func(body io.Reader) error {
			families, err := figures.ParseMetrics(body)
			if err != nil {
				return err
			}
			sum := func(name string, of func(*dto.Metric) float64) {
				for _, metric := range families[name].GetMetric() {
					sums[name] += of(metric)
				}
			}
			count := func(m *dto.Metric) float64 { return float64(m.GetHistogram().GetSampleCount()) }
			sum(metricSyncs, count)
			sum(metricRelists, count)
			sum(metricThrottled, func(m *dto.Metric) float64 { return m.GetHistogram().GetSampleSum() })
			sum(metricHeap, func(m *dto.Metric) float64 { return m.GetGauge().GetValue() })
			return nil
		}); err != nil {
			return nil, err
		}
	}
	m.run.Heap = max(m.run.Heap, sums[metricHeap])
	delete(sums, metricHeap)
	return sums, nil
}

// count counts the restarts in the API and in the runtime. The API lags behind while
// pods crash. If they no longer crash, count waits until both numbers are equal.
func (m *measurement) count() error {
	if m.Scenario.Mix != onDependent {
		return m.countOnce()
	}
	return harness.Await(m.Context(), "equal restart counts in the API and the runtime", time.Minute, func(context.Context) error {
		if err := m.countOnce(); err != nil {
			return err
		}
		if m.run.APIRestarts != m.run.Restarts {
			return fmt.Errorf("%d restarts in the API, %d in the runtime", m.run.APIRestarts, m.run.Restarts)
		}
		return nil
	})
}

func (m *measurement) countOnce() error {
	if err := m.readJournal(); err != nil {
		return err
	}
	m.run.Restarts, m.run.APIRestarts = 0, 0
	for _, n := range m.starts() {
		m.run.Restarts += n - 1
	}
	return m.request(http.MethodGet, "", nil, func(body io.Reader) error {
		var list corev1.PodList
		if err := json.NewDecoder(body).Decode(&list); err != nil {
			return err
		}
		for _, pod := range list.Items {
			for _, s := range pod.Status.ContainerStatuses {
				if m.Scenario.measures(pod.Name, s.Name) {
					m.run.APIRestarts += int(s.RestartCount)
				}
			}
		}
		return nil
	})
}

// profile takes profiles of the first kubelet under the load of the window: CPU, blocking,
// and the heap at the beginning.
func (m *measurement) profile() error {
	if err := os.MkdirAll(m.Profile, 0o755); err != nil {
		return err
	}
	m.say("profiling for %v", profiling)
	if _, err := m.events(); err != nil {
		return err
	}
	name := strings.ReplaceAll(m.Scenario.name(), "/", "-") + "-" + m.Label
	// The profiles run at the same time, so that all cover the same seconds.
	kinds := []struct {
		name, path string
		taken      *profile.Profile
	}{{"cpu", fmt.Sprint("profile?seconds=", profiling.Seconds()), nil}, {"block", fmt.Sprint("block?seconds=", profiling.Seconds()), nil}, {"heap", "heap?gc=1", nil}}
	failed := make(chan error, len(kinds))
	for i := range kinds {
		kind := &kinds[i]
		go func() {
			failed <- m.fromKubelet(m.nodes[0], "/debug/pprof/"+kind.path, func(body io.Reader) error {
				data, err := io.ReadAll(body)
				if err != nil {
					return err
				}
				if kind.taken, err = profile.ParseData(data); err != nil {
					return fmt.Errorf("the kubelet's profile %s: %w", kind.path, err)
				}
				return os.WriteFile(filepath.Join(m.Profile, name+"."+kind.name+".pb.gz"), data, 0o644)
			})
		}()
	}
	var err error
	for range kinds {
		err = errors.Join(err, <-failed)
	}
	if err != nil {
		return err
	}
	events, err := m.events()
	if err != nil {
		return err
	}
	restarts := 0
	for _, e := range events {
		if m.isStart(e) {
			restarts++
		}
	}
	m.run.Costs = costs(kinds[0].taken, cpuPurposes, restarts)
	m.run.Waits = costs(kinds[1].taken, waitPurposes, restarts)
	return nil
}
