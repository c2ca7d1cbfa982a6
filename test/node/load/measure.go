// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// Figures is the result of a Run. Times are in seconds.
type Figures struct {
	Version string `json:"version"`
	// Seconds is the length of the window, and Restarts the number of restarts in it.
	Seconds   float64 `json:"seconds"`
	Restarts  int     `json:"restarts"`
	PerSecond float64 `json:"perSecond"`
	// Ideal is the number of restarts per second if each was on time. It is zero if
	// containers do not crash all the time.
	Ideal float64 `json:"ideal,omitempty"`
	// First covers the first restart of each container, and Lateness all others in the
	// window.
	Lateness figures.Summary `json:"lateness"`
	First    figures.Summary `json:"first,omitzero"`
	// Latest is the mean of the latest 1 % of the restarts in Lateness.
	Latest Parts `json:"latest"`
	// Kubelet, APIServer and Runtime have the resource use of the processes.
	Kubelet   Use `json:"kubelet"`
	APIServer Use `json:"apiserver"`
	Runtime   Use `json:"runtime"`
	// Others is the use of all other processes of the machine, including etcd, in cores.
	Others float64 `json:"others"`
	// Stolen is the number of cores that a hypervisor gave to other machines while this
	// one had work. Do not compare runs in which it differs.
	Stolen float64 `json:"stolen"`
	// Heap is the maximum of the kubelet's heap in bytes.
	Heap float64 `json:"heap"`
	// Requests has the kubelet's requests for pods and events per restart, by verb and
	// resource. RequestsPer10s is the total per ten seconds.
	Requests           map[string]float64 `json:"requests"`
	RequestsPerRestart float64            `json:"requestsPerRestart"`
	RequestsPer10s     float64            `json:"requestsPer10s"`
	// IdleRequestsPer10s and IdleAPIServer, in cores, are the use before there were crashing pods, while healthy pods started as
	// often as in the window.
	IdleRequestsPer10s map[string]float64 `json:"idleRequestsPer10s"`
	IdleAPIServer      float64            `json:"idleApiserver"`
	// RequestMedian and RequestP99 are estimates of how long the API server took for a request, in milliseconds.
	RequestMedian float64 `json:"requestMedian"`
	RequestP99    float64 `json:"requestP99"`
	// Throttled is the time in seconds, per second, for which requests waited for the
	// kubelet's own limit, summed over all requests.
	Throttled float64 `json:"throttled"`
	// Syncs of pods and Calls of the runtime are per restart, Relists per second.
	Syncs           float64            `json:"syncs"`
	Calls           map[string]float64 `json:"calls"`
	CallsPerRestart float64            `json:"callsPerRestart"`
	Relists         float64            `json:"relists"`
	// Healthy and Idle are the times from the creation of a healthy pod to the start
	// of its container, among crashing pods and on the idle node. NotStarted is the number
	// of pods that did not start; these count with the time until the end.
	Healthy    figures.Summary `json:"healthy"`
	NotStarted int             `json:"notStarted,omitempty"`
	Idle       figures.Summary `json:"idle"`
	// HealthyError is the standard error of the median of Healthy.
	HealthyError float64 `json:"healthyError"`
	// Recovered is the time from the return of the dependency to the start of the last
	// container, and RecoveredHalf to the start of the last one of the first half.
	// Recovery is this time for each container, and RecoveryOfAll for the last one, if
	// the dependency had come back at other moments. All containers wait in step, so a
	// single moment shows little.
	Recovered     float64         `json:"recovered,omitempty"`
	RecoveredHalf float64         `json:"recoveredHalf,omitempty"`
	Recovery      figures.Summary `json:"recovery,omitzero"`
	RecoveryOfAll figures.Summary `json:"recoveryOfAll,omitzero"`
	// PeakAway is the maximum of the kubelet's cores in any second while the dependency
	// was down, without the first, undelayed restarts. PeakBack is the maximum after its
	// return. Busiest is the maximum number of starts in any second of both times.
	PeakAway float64 `json:"peakAway,omitempty"`
	PeakBack float64 `json:"peakBack,omitempty"`
	Busiest  int     `json:"busiest,omitempty"`
	// Costs and Waits are the CPU times and the waits of the kubelet in the profiles, if
	// any, by purpose, in milliseconds per restart.
	Costs map[string]float64 `json:"costs,omitempty"`
	Waits map[string]float64 `json:"waits,omitempty"`
	// WarmUp is the time from the creation of the pods to the window.
	WarmUp float64 `json:"warmUp"`
	// APIRestarts and AllRestarts are the numbers of all restarts until after the window,
	// in the API and in the runtime.
	APIRestarts int `json:"apiRestarts"`
	AllRestarts int `json:"allRestarts"`

	// amid has the time of each healthy pod. The others are for charts: the lateness of
	// each restart, and the kubelet's cores and the starts of containers over time.
	amid, late  []float64
	cpu, starts []chart.Point
}

// Parts are the parts of a lateness, in seconds: from the end of the back-off until the
// kubelet reads the exit, if that is later, until it asks the runtime for the container,
// which includes the containers before it if the pod restarts, and until it starts.
type Parts struct {
	All     float64 `json:"all"`
	Exit    float64 `json:"exit"`
	Kubelet float64 `json:"kubelet"`
	Runtime float64 `json:"runtime"`
}

// partsOf returns the parts of the lateness of a start whose back-off ended at due.
func partsOf(e memcri.Event, due time.Time) (p Parts) {
	p.All = e.At.Sub(due).Seconds()
	if e.Told.After(due) {
		p.Exit = e.Told.Sub(due).Seconds()
		due = e.Told
	}
	p.Kubelet, p.Runtime = e.Asked.Sub(due).Seconds(), e.At.Sub(e.Asked).Seconds()
	return p
}

// latest returns the mean of the latest 1 %, at least of one.
func latest(all []Parts) (mean Parts) {
	if len(all) == 0 {
		return mean
	}
	slices.SortFunc(all, func(a, b Parts) int { return cmp.Compare(b.All, a.All) })
	n := (len(all) + 99) / 100
	for _, p := range all[:n] {
		mean.All += p.All / float64(n)
		mean.Exit += p.Exit / float64(n)
		mean.Kubelet += p.Kubelet / float64(n)
		mean.Runtime += p.Runtime / float64(n)
	}
	return mean
}

// Use is the resource use of a process in the window.
type Use struct {
	// PerRestart is the CPU time per restart in milliseconds. Cores is the mean number of
	// cores, and Peak the maximum in any second.
	PerRestart float64 `json:"perRestart"`
	Cores      float64 `json:"cores"`
	Peak       float64 `json:"peak"`
	// Memory is the maximum of the resident memory in bytes.
	Memory float64 `json:"memory,omitempty"`
}

// measure returns the figures of a run.
func measure(run Run, s Scenario) (f Figures, err error) {
	f.Version, f.Heap, f.APIRestarts, f.AllRestarts = run.Version, run.Heap, run.APIRestarts, run.Restarts
	f.Seconds = run.To.Sub(run.From).Seconds()
	f.WarmUp = run.From.Sub(run.Created).Seconds()
	if err := f.restarts(run, s); err != nil {
		return f, err
	}
	if f.Restarts == 0 {
		return f, errors.New("the measuring window has no restart")
	}
	// A delay that grows in the window gives no rate.
	if s.Mix != onDependent && s.delay(2) > 0 && s.delay(2) == s.Maximum {
		f.Ideal = s.ideal()
	}
	n := float64(f.Restarts)
	f.PerSecond = n / f.Seconds
	use := func(cpu, memory func(Sample) float64) Use { return used(run.Samples, f.Restarts, cpu, memory) }
	f.Kubelet = use(func(s Sample) float64 { return s.Kubelet }, func(s Sample) float64 { return s.KubeletMemory })
	f.APIServer = use(func(s Sample) float64 { return s.APIServer }, func(s Sample) float64 { return s.APIServerMemory })
	f.Runtime = use(func(s Sample) float64 { return s.Runtime }, func(Sample) float64 { return 0 })
	f.Others = use(func(s Sample) float64 { return s.All - s.Kubelet - s.APIServer - s.Runtime }, func(Sample) float64 { return 0 }).Cores
	f.Stolen = use(func(s Sample) float64 { return s.Stolen }, func(Sample) float64 { return 0 }).Cores
	f.Requests, f.Calls = map[string]float64{}, map[string]float64{}
	for kind, count := range run.Requests {
		f.Requests[kind] = count / n
		f.RequestsPerRestart += count / n
		f.RequestsPer10s += count / f.Seconds * 10
	}
	if idle := run.Idle; idle.Seconds > 0 {
		f.IdleRequestsPer10s = map[string]float64{}
		for kind, count := range idle.Requests {
			f.IdleRequestsPer10s[kind] = count / idle.Seconds * 10
		}
		f.IdleAPIServer = idle.APIServer / idle.Seconds
	}
	f.RequestMedian, f.RequestP99 = run.RequestMedian*1000, run.RequestP99*1000
	for method, c := range run.Calls {
		f.Calls[method] = float64(c.Count) / n
		f.CallsPerRestart += float64(c.Count) / n
	}
	f.Syncs = run.Metrics[metricSyncs] / n
	f.Relists = run.Metrics[metricRelists] / f.Seconds
	f.Throttled = run.Metrics[metricThrottled] / f.Seconds
	f.Costs, f.Waits = run.Costs, run.Waits
	f.healthyPods(run)
	if !run.Back.IsZero() {
		f.recovery(run, s)
	}
	f.cpu, f.starts = overTime(run.Samples), startsOverTime(run, s)
	return f, nil
}

// undelayed is the maximum duration of the first restarts after the loss of a
// dependency, which have no delay with any curve.
const undelayed = 5 * time.Second

// momentsApart is the interval of the moments at which the dependency could have come
// back.
const momentsApart = 100 * time.Millisecond

// recovery computes Recovery and RecoveryOfAll for moments in the second half of the
// outage, when all delays are the maximum. A container that starts after the moment
// would have recovered.
func (f *Figures) recovery(run Run, s Scenario) {
	starts := map[string][]time.Time{}
	for _, e := range run.Journal {
		if isMain(e, s) && e.What == memcri.Started {
			starts[idOf(e)] = append(starts[idOf(e)], e.At)
		}
	}
	after := func(moment time.Time) (waits []float64) {
		for _, all := range starts {
			i, _ := slices.BinarySearchFunc(all, moment, time.Time.Compare)
			if i < len(all) {
				waits = append(waits, all[i].Sub(moment).Seconds())
			}
		}
		return waits
	}
	recovered := slices.Sorted(slices.Values(after(run.Back)))
	if n := len(recovered); n > 0 {
		f.RecoveredHalf, f.Recovered = recovered[(n-1)/2], recovered[n-1]
	}
	var each, last []float64
	for moment := run.From.Add(run.Back.Sub(run.From) / 2); moment.Before(run.Back); moment = moment.Add(momentsApart) {
		waits := after(moment)
		each = append(each, waits...)
		last = append(last, figures.Summarize(waits).Worst)
	}
	f.Recovery, f.RecoveryOfAll = figures.Summarize(each), figures.Summarize(last)
	begin := run.From.Add(undelayed)
	var all []time.Time
	for _, some := range starts {
		all = append(all, some...)
	}
	f.Busiest = busiest(slices.DeleteFunc(all, func(t time.Time) bool { return t.Before(begin) }))
	cpu := func(from, to time.Time) float64 {
		return peak(slices.DeleteFunc(slices.Clone(run.Samples), func(s Sample) bool { return s.At.Before(from) || s.At.After(to) }),
			func(s Sample) float64 { return s.Kubelet })
	}
	f.PeakAway, f.PeakBack = cpu(begin, run.Back), cpu(run.Back, run.To)
}

// busiest returns the maximum number of times within one second.
func busiest(times []time.Time) (most int) {
	slices.SortFunc(times, time.Time.Compare)
	first := 0
	for i, t := range times {
		for t.Sub(times[first]) >= time.Second {
			first++
		}
		most = max(most, i+1-first)
	}
	return most
}

// restarts computes the figures of restarts of the main containers. It returns an error
// if one starts while an earlier instance runs.
func (f *Figures) restarts(run Run, s Scenario) error {
	type history struct {
		starts  int
		exited  time.Time
		running bool
	}
	all := map[string]*history{}
	var late, first []float64
	var parts []Parts
	for _, e := range run.Journal {
		if !isMain(e, s) {
			continue
		}
		h := all[idOf(e)]
		if h == nil {
			h = &history{}
			all[idOf(e)] = h
		}
		if e.What == memcri.Exited {
			h.exited, h.running = e.At, false
			continue
		}
		if h.running {
			return fmt.Errorf("pod %s: %s was started at %v, while it ran", e.Pod, e.Container, e.At)
		}
		h.running = true
		n := h.starts - 1
		h.starts++
		if n < 0 || e.At.Before(run.From) || !e.At.Before(run.To) {
			continue
		}
		f.Restarts++
		wait := e.At.Sub(h.exited)
		if n == 0 {
			first = append(first, wait.Seconds())
		} else {
			late = append(late, (wait - s.delay(n)).Seconds())
			parts = append(parts, partsOf(e, h.exited.Add(s.delay(n))))
		}
	}
	f.late = late
	f.Lateness, f.First, f.Latest = figures.Summarize(late), figures.Summarize(first), latest(parts)
	return nil
}

// isMain reports whether an event is of a container that the scenario measures.
func isMain(e memcri.Event, s Scenario) bool { return s.measures(e.Pod, e.Container) }

func (s Scenario) measures(pod, container string) bool {
	return strings.HasPrefix(container, mainContainer) && strings.HasPrefix(pod, s.Mix)
}

// idOf identifies the container of an event in all its instances.
func idOf(e memcri.Event) string { return e.UID + "/" + e.Container }

// countRunning returns the number of main containers that run at the end of a journal.
func countRunning(journal []memcri.Event, s Scenario) int {
	running := map[string]bool{}
	for _, e := range journal {
		if isMain(e, s) {
			running[idOf(e)] = e.What == memcri.Started
		}
	}
	n := 0
	for _, runs := range running {
		if runs {
			n++
		}
	}
	return n
}

// healthyPods computes the figures of healthy pods.
func (f *Figures) healthyPods(run Run) {
	started := map[string]time.Time{}
	for _, e := range run.Journal {
		if _, seen := started[e.Pod]; !seen && e.What == memcri.Started {
			started[e.Pod] = e.At
		}
	}
	var amid, idle []float64
	for _, i := range run.HealthyPods {
		at, found := started[i.Name]
		if !found {
			f.NotStarted++
			at = run.End
		}
		took := at.Sub(i.Created).Seconds()
		if i.Idle {
			idle = append(idle, took)
		} else {
			amid = append(amid, took)
		}
	}
	f.Healthy, f.Idle = figures.Summarize(amid), figures.Summarize(idle)
	f.amid, f.HealthyError = amid, errorOfMedian(amid)
}

// errorOfMedian returns the standard error of a sample's median, estimated from the
// interquartile range of an approximately normal distribution.
func errorOfMedian(sample []float64) float64 {
	n := len(sample)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(sample))
	quartile := func(part float64) float64 { return sorted[int(math.Ceil(part*float64(n)))-1] }
	// The standard error is 1.253 times the standard deviation, which is the range
	// divided by 1.349, divided by the square root of n.
	return 0.93 * (quartile(0.75) - quartile(0.25)) / math.Sqrt(float64(n))
}

// used returns the resource use of a process.
func used(samples []Sample, restarts int, cpu, memory func(Sample) float64) (u Use) {
	if len(samples) == 0 {
		return u
	}
	first, last := samples[0], samples[len(samples)-1]
	total := cpu(last) - cpu(first)
	u.PerRestart = total * 1000 / float64(restarts)
	if seconds := last.At.Sub(first.At).Seconds(); seconds > 0 {
		u.Cores = total / seconds
	}
	for _, s := range samples {
		u.Memory = max(u.Memory, memory(s))
	}
	u.Peak = peak(samples, cpu)
	return u
}

// peak returns the maximum number of cores that a process used in any second.
func peak(samples []Sample, cpu func(Sample) float64) (most float64) {
	end := 0
	for _, s := range samples {
		for end < len(samples) && samples[end].At.Sub(s.At) < time.Second {
			end++
		}
		if end < len(samples) {
			most = max(most, (cpu(samples[end])-cpu(s))/samples[end].At.Sub(s.At).Seconds())
		}
	}
	return most
}
