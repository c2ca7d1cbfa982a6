// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// Synthetic returns the scrapes of two hours of a node that is not real: its
// back-offs are those of the library, and what its containers do is made up. It
// is the same each time. In the first hour most containers begin to crash, and
// after it the machine is overloaded for ten minutes.
func Synthetic() ([]Scrape, error) {
	s := newSimulation()
	var scrapes []Scrape
	for at := s.start; at.Sub(s.start) <= 2*time.Hour; at = at.Add(15 * time.Second) {
		s.runUntil(at)
		metrics, err := s.metrics.text()
		if err != nil {
			return nil, err
		}
		scrapes = append(scrapes, Scrape{At: at, Metrics: metrics})
	}
	return scrapes, nil
}

// kubeletMetrics are those of a kubelet of this project.
type kubeletMetrics struct {
	registry  *prometheus.Registry
	waiting   prometheus.Gauge
	delay     *prometheus.HistogramVec
	lateness  *prometheus.HistogramVec
	resets    *prometheus.CounterVec
	keys      *prometheus.GaugeVec
	inPlace   *prometheus.CounterVec
	phaseTime *prometheus.HistogramVec
	restartAt *prometheus.CounterVec
	gaveUp    prometheus.Counter
	curves    prometheus.Gauge
}

func newKubeletMetrics() *kubeletMetrics {
	m := &kubeletMetrics{
		registry: prometheus.NewRegistry(),
		waiting:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_restart_backoff_waiting_containers"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_restart_backoff_delay_seconds",
			Buckets: []float64{0, 1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 60, 80, 160, 300}}, []string{"type"}),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_restart_backoff_lateness_seconds",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}}, []string{"type"}),
		resets:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_restart_backoff_resets_total"}, []string{"type"}),
		keys:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_restart_backoff_keys"}, []string{"type"}),
		inPlace: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_in_place_restarts_total"}, []string{"action", "outcome"}),
		phaseTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_in_place_restart_phase_duration_seconds",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 12, 24, 45, 90, 180, 330, 600}}, []string{"action", "phase"}),
		gaveUp:    prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_restart_limit_exceeded_pods_total"}),
		curves:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_restart_curve_containers"}),
		restartAt: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_restart_at_annotations_total"}, []string{"outcome"}),
	}
	for _, action := range []string{"RestartPod", "RestartAllContainers"} {
		for _, outcome := range []string{"Restarted", "Failed", "Deleted", "TriggeredAgain"} {
			m.inPlace.WithLabelValues(action, outcome)
		}
		for _, phase := range []string{"TerminatingForRestart", "Startup"} {
			m.phaseTime.WithLabelValues(action, phase)
		}
	}
	m.registry.MustRegister(m.waiting, m.delay, m.lateness, m.resets, m.keys, m.inPlace, m.phaseTime, m.restartAt, m.gaveUp, m.curves)
	return m
}

func (m *kubeletMetrics) text() ([]byte, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	encoder := expfmt.NewEncoder(&b, expfmt.NewFormat(expfmt.TypeTextPlain).WithEscapingScheme(model.NoEscaping))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// simulation is a node with containers and pods that exit and restart.
type simulation struct {
	metrics  *kubeletMetrics
	backOffs map[string]*backoff.Backoff // By type.
	random   *rand.Rand
	start    time.Time
	now      time.Time
	events   events
	waiting  int
}

func newSimulation() *simulation {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s := &simulation{metrics: newKubeletMetrics(), backOffs: map[string]*backoff.Backoff{}, random: rand.New(rand.NewPCG(1, 2)), start: start, now: start}
	for _, kind := range []string{"container", "pod"} {
		b := backoff.NewBackOff(10*time.Second, 300*time.Second)
		b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
		b.SetMetrics(keyMetrics{s.metrics, kind})
		s.backOffs[kind] = b
	}
	for i := range 40 {
		// One in five has runs that are long enough to start over.
		run := time.Duration(2+s.random.IntN(40)) * time.Second
		if i%5 == 0 {
			run = 11 * time.Minute
		}
		s.container(fmt.Sprintf("container-%d", i), start.Add(time.Duration(s.random.IntN(3600))*time.Second), run)
	}
	for i := range 8 {
		action := []string{"RestartPod", "RestartAllContainers"}[i%2]
		s.pod(fmt.Sprintf("pod-%d", i), action, start.Add(time.Duration(60+s.random.IntN(3000))*time.Second))
	}
	for i := range 8 {
		s.at(start.Add(time.Duration(i)*17*time.Minute), s.metrics.gaveUp.Inc)
		s.at(start.Add(time.Duration(i)*11*time.Minute), s.metrics.curves.Inc)
	}
	for i := range 24 {
		outcome := []string{"honored", "honored", "refused", "invalid"}[s.random.IntN(4)]
		s.at(start.Add(time.Duration(i)*5*time.Minute), func() { s.metrics.restartAt.WithLabelValues(outcome).Inc() })
	}
	return s
}

// late is how late a restart is: in the second hour the machine is overloaded for
// a while.
func (s *simulation) late(at time.Time) time.Duration {
	late := time.Duration(5+s.random.ExpFloat64()*15) * time.Millisecond
	if into := at.Sub(s.start); into > 65*time.Minute && into < 75*time.Minute {
		late += time.Duration(s.random.ExpFloat64() * float64(2*time.Second))
	}
	return late
}

// container has a container exit at a time, and again after each run.
func (s *simulation) container(id string, exit time.Time, run time.Duration) {
	s.at(exit, func() {
		s.restart("container", id, exit, func(started time.Time) {
			s.container(id, started.Add(run), run)
		})
	})
}

// restart starts something when its back-off ends.
func (s *simulation) restart(kind, id string, exit time.Time, start func(time.Time)) {
	d := s.backOffs[kind].Decide(id, exit, s.now)
	if d.Allowed {
		start(s.now)
		return
	}
	if kind == "container" {
		s.waiting++
	}
	s.at(d.RetryAt.Add(s.late(d.RetryAt)), func() {
		if kind == "container" {
			s.waiting--
		}
		s.restart(kind, id, exit, start)
	})
}

// pod has a pod restart in place by an exit at a time, and again later.
func (s *simulation) pod(id, action string, exit time.Time) {
	s.at(exit, func() {
		s.restart("pod", id, exit, func(time.Time) {
			grace := time.Duration(0)
			if action == "RestartPod" {
				grace = time.Duration(s.random.ExpFloat64() * float64(2*time.Second))
			}
			s.at(s.now.Add(grace), func() { s.startPod(id, action, exit) })
		})
	})
}

func (s *simulation) startPod(id, action string, exit time.Time) {
	terminated := s.now
	startup := 200*time.Millisecond + time.Duration(s.random.ExpFloat64()*float64(3*time.Second))
	s.at(terminated.Add(startup), func() {
		outcome := "Restarted"
		switch n := s.random.IntN(12); n {
		case 0, 1:
			outcome = "Failed"
		case 2:
			outcome = "Deleted"
		}
		s.metrics.phaseTime.WithLabelValues(action, "TerminatingForRestart").Observe(terminated.Sub(exit).Seconds())
		s.metrics.phaseTime.WithLabelValues(action, "Startup").Observe(startup.Seconds())
		s.metrics.inPlace.WithLabelValues(action, outcome).Inc()
		s.pod(id, action, s.now.Add(time.Duration(30+s.random.IntN(900))*time.Second))
	})
}

func (s *simulation) at(t time.Time, do func()) { heap.Push(&s.events, event{t, do}) }

func (s *simulation) runUntil(t time.Time) {
	for len(s.events) > 0 && !s.events[0].at.After(t) {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.now = t
	s.metrics.waiting.Set(float64(s.waiting))
}

// events are sorted by time.
type events []event

type event struct {
	at time.Time
	do func()
}

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push is heap.Interface's.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop is heap.Interface's.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// keyMetrics are the metrics of a back-off of a type.
type keyMetrics struct {
	*kubeletMetrics
	kind string
}

func (m keyMetrics) KeyAdded()   { m.keys.WithLabelValues(m.kind).Inc() }
func (m keyMetrics) KeyRemoved() { m.keys.WithLabelValues(m.kind).Dec() }
func (m keyMetrics) KeyReset()   { m.resets.WithLabelValues(m.kind).Inc() }
func (m keyMetrics) RestartAllowed(_ string, delay, late time.Duration) {
	m.delay.WithLabelValues(m.kind).Observe(delay.Seconds())
	if delay > 0 {
		m.lateness.WithLabelValues(m.kind).Observe(late.Seconds())
	}
}
