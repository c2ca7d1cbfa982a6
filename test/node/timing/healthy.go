// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

const (
	// idleHealthyPods is the number of healthy pods that start before others crash, and
	// healthyPeriod the minimum interval between healthy pods.
	idleHealthyPods = 8
	healthyPeriod   = 2500 * time.Millisecond
	// healthyRatio is the limit for the median start of a healthy pod while others crash,
	// and worstHealthyRatio that for the worst, both as a multiple of the median on the idle
	// node. restartRate is the minimum rate of restarts, as a share of stock's.
	healthyRatio      = 1.5
	worstHealthyRatio = 2.5
	restartRate       = 0.9
	// fewestRestarts is the minimum number of restarts of each pod, as a share of the
	// mean.
	fewestRestarts = 0.5
)

// healthyPods has the times from the creation of healthy pods to their start, in
// seconds.
type healthyPods struct {
	// Idle is for pods on the idle node, and Busy for pods while others crash.
	Idle []float64 `json:"idle"`
	Busy []float64 `json:"busy"`
}

// startHealthyPods starts one healthy pod after another until enough returns true for
// the number of started pods and the elapsed time.
func (m *measurement) startHealthyPods(api *harness.APIServer, phase string, enough func(n int, elapsed time.Duration) bool) (took []float64, err error) {
	began := time.Now()
	for n := 0; !enough(n, time.Since(began)); n++ {
		next := time.After(healthyPeriod)
		seconds, err := m.startHealthy(api, fmt.Sprintf("healthy-%s-%02d", phase, n+1))
		if err != nil {
			return nil, err
		}
		m.say("%s: a healthy pod started after %.2f s", phase, seconds)
		took = append(took, seconds)
		select {
		case <-next:
		case <-m.Context().Done():
			return nil, context.Cause(m.Context())
		}
	}
	return took, nil
}

// startHealthy creates a pod with a container that records its start and exits. It
// returns the time from the creation to the start, and deletes the pod.
func (m *measurement) startHealthy(api *harness.APIServer, name string) (float64, error) {
	pod := m.pods()[0]
	pod.Name = name
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Args = []string{"/starts/" + name}
	for i := range m.scenario.Inits {
		mounts := []corev1.VolumeMount{{Name: "pod", MountPath: "/pod"}}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, actor(fmt.Sprintf("init-%d", i+1), mounts, "exit=0"))
	}
	if m.scenario.Inits > 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "pod", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	if m.registry != nil {
		image, err := m.registry.Add(name, m.scenario.ImageSize)
		if err != nil {
			return 0, err
		}
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, corev1.PullAlways
	}
	data, err := json.Marshal(pod)
	if err != nil {
		return 0, err
	}
	created, err := uptime()
	if err != nil {
		return 0, err
	}
	if err := api.Request(m.Context(), http.MethodPost, podsPath, data, nil); err != nil {
		return 0, err
	}
	// The recorded time is exact, even if it is read late.
	var started float64
	if err := harness.Await(m.Context(), "the start of "+name, time.Minute, func(context.Context) error {
		data, err := os.ReadFile(m.Path(startsDir, name))
		if err != nil {
			return err
		}
		starts, err := parseStarts(data)
		if err == nil && len(starts) == 0 {
			err = fmt.Errorf("%s has not started", name)
		}
		if err == nil {
			started = starts[0]
		}
		return err
	}); err != nil {
		return 0, err
	}
	if err := os.Remove(m.Path(startsDir, name)); err != nil {
		return 0, err
	}
	return started - created, api.Request(m.Context(), http.MethodDelete, podsPath+"/"+name, nil, nil)
}

// summarizeHealthyPods adds the figures of healthy pods in the runs.
func (f *Figures) summarizeHealthyPods(runs []Run) {
	if runs[0].HealthyPods == nil {
		return
	}
	var all healthyPods
	seconds := 0.0
	f.FewestRestarts = math.MaxInt
	for _, run := range runs {
		all.Idle = slices.Concat(all.Idle, run.HealthyPods.Idle)
		all.Busy = slices.Concat(all.Busy, run.HealthyPods.Busy)
		seconds += run.To - run.From
		for _, starts := range run.Starts {
			restarts := 0
			for _, t := range starts[min(1, len(starts)):] {
				if t >= run.From && t < run.To {
					restarts++
				}
			}
			f.FewestRestarts = min(f.FewestRestarts, restarts)
		}
	}
	f.HealthyIdle, f.Healthy = figures.Summarize(all.Idle), figures.Summarize(all.Busy)
	f.RestartRate = float64(f.Restarts) / seconds
}

// compareHealthyPods applies the criteria for healthy pods.
func compareHealthyPods(s Scenario, reference string, stock, ours Figures, criterion criterionFunc) {
	if s.Inits > 0 {
		limit := s.InitRatio * stock.HealthyIdle.Median
		criterion(fmt.Sprintf("start of a pod with %d init containers, median, at most %g of %s's", s.Inits, s.InitRatio, reference), "s",
			stock.HealthyIdle.Median, ours.HealthyIdle.Median, limit, ours.HealthyIdle.Median <= limit)
		return
	}
	limit := restartRate * stock.RestartRate
	criterion(fmt.Sprintf("restarts per second at least %g of %s's", restartRate, reference), "/s",
		stock.RestartRate, ours.RestartRate, limit, ours.RestartRate >= limit)
	limit = fewestRestarts * float64(ours.Restarts) / float64(ours.Rounds*s.Pods)
	criterion(fmt.Sprintf("restarts of the pod that has fewest at least %g of the mean", fewestRestarts), "",
		float64(stock.FewestRestarts), float64(ours.FewestRestarts), limit, float64(ours.FewestRestarts) >= limit)
	if s.ImageSize > 0 {
		return // The time is that of the download.
	}
	limit = healthyRatio * ours.HealthyIdle.Median
	criterion(fmt.Sprintf("start of a healthy pod, median, at most %g times the median on the idle node", healthyRatio), "s",
		stock.Healthy.Median, ours.Healthy.Median, limit, ours.Healthy.Median <= limit)
	limit = worstHealthyRatio * ours.HealthyIdle.Median
	criterion(fmt.Sprintf("start of a healthy pod, worst, at most %g times the median on the idle node", worstHealthyRatio), "s",
		stock.Healthy.Worst, ours.Healthy.Worst, limit, ours.Healthy.Worst <= limit)
}

// healthyRows returns the rows of a table for healthy pods.
func healthyRows() []row {
	return []row{
		{"restarts per second", "%.2f", func(f Figures) float64 { return f.RestartRate }},
		{"restarts of the pod that has fewest", "%.0f", func(f Figures) float64 { return float64(f.FewestRestarts) }},
		{"healthy pod, idle node, median", "%.2f s", func(f Figures) float64 { return f.HealthyIdle.Median }},
		{"healthy pod, idle node, worst", "%.2f s", func(f Figures) float64 { return f.HealthyIdle.Worst }},
		{"healthy pod, median", "%.2f s", func(f Figures) float64 { return f.Healthy.Median }},
		{"healthy pod, worst", "%.2f s", func(f Figures) float64 { return f.Healthy.Worst }},
	}
}
