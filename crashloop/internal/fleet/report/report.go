// SPDX-License-Identifier: Apache-2.0

// Package report presents a fleet.Result as figures, tables, charts and a page.
package report

import (
	"fmt"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
)

// Report has the figures of a result, as encoded in JSON. All times are in seconds.
type Report struct {
	// Workload describes the simulation.
	Workload string `json:"workload"`
	Nodes    int    `json:"nodes"`
	// Containers is the number of containers of all nodes.
	Containers int `json:"containers"`
	// Seconds is the simulated time.
	Seconds float64 `json:"seconds"`
	Seed    uint64  `json:"seed"`
	Costs   Costs   `json:"costs"`
	// Curves are in the order of the options. Excess is the difference to the first one.
	Curves         []Curve         `json:"curves"`
	Recommendation *Recommendation `json:"recommendation,omitempty"`

	step time.Duration
}

// Costs are fleet.Costs.
type Costs struct {
	RequestsPerRestart   float64 `json:"requestsPerRestart"`
	EventsPerRestart     int     `json:"eventsPerRestart"`
	RequestsPerSecond    float64 `json:"requestsPerSecondLimit"`
	EventsPerSecond      float64 `json:"eventsPerSecondLimit"`
	CPUSecondsPerRestart float64 `json:"cpuSecondsPerRestart"`
	CPUSecondsPerRequest float64 `json:"cpuSecondsPerRequest"`
	CPUIdle              float64 `json:"cpuIdle"`
	APIServerPerRequest  float64 `json:"apiServerCPUSecondsPerRequest"`
}

// Curve has the figures of a curve.
type Curve struct {
	Name           string  `json:"name"`
	InitialSeconds float64 `json:"initialSeconds"`
	MaximumSeconds float64 `json:"maximumSeconds"`
	DelayFirst     bool    `json:"delayFirst,omitempty"`
	Restarts       uint64  `json:"restarts"`
	// RestartsPerContainer is a mean. ExcessPerContainer is its difference to the mean of the first
	// curve.
	RestartsPerContainer float64 `json:"restartsPerContainer"`
	ExcessPerContainer   float64 `json:"excessPerContainer"`
	// RequestsNode is the mean number of API requests of a node in 10 s, and RequestsNodeBusiest
	// the maximum of any node in any 10 s.
	RequestsNode        float64 `json:"requestsPer10sNode"`
	RequestsNodeBusiest float64 `json:"requestsPer10sNodeBusiest"`
	// RequestsFleet is the mean number of API requests of all nodes in 10 s, and
	// RequestsFleetBusiest the maximum in any 10 s.
	RequestsFleet        float64 `json:"requestsPer10sFleet"`
	RequestsFleetBusiest float64 `json:"requestsPer10sFleetBusiest"`
	// CPU is the mean number of processors that a kubelet uses, and CPUBusiest the maximum of any
	// node in any 10 s.
	CPU        float64 `json:"cpuNode"`
	CPUBusiest float64 `json:"cpuNodeBusiest"`
	// APIServerCPU is the mean number of processors that the API server uses for these requests.
	APIServerCPU float64 `json:"cpuAPIServer"`
	// Down is the share of the time in which containers waited.
	Down float64 `json:"downShare"`
	// Completed is the number of containers that ended with success.
	Completed  uint64     `json:"completed,omitempty"`
	Recoveries []Recovery `json:"recoveries,omitempty"`
	Series     []Point    `json:"series"`
}

// Recovery is how long containers took to start after a dependency was back. P50, P99 and Longest
// are nil if fewer containers recovered.
type Recovery struct {
	BackSeconds float64  `json:"backSeconds"`
	Containers  uint64   `json:"containers"`
	P50         *float64 `json:"p50Seconds,omitempty"`
	P99         *float64 `json:"p99Seconds,omitempty"`
	Longest     *float64 `json:"longestSeconds,omitempty"`
	// Never is the number of containers that had not started by the end.
	Never uint64 `json:"never"`
}

// Point has the restarts until a time, and the requests since the previous point.
type Point struct {
	AfterSeconds         float64 `json:"afterSeconds"`
	RestartsPerContainer float64 `json:"restartsPerContainer"`
	ExcessPerContainer   float64 `json:"excessPerContainer"`
	Requests             float64 `json:"requestsPer10sFleet"`
}

// Recommendation is a fleet.Recommendation. Requests are requests per second of all nodes.
type Recommendation struct {
	BudgetRequests float64 `json:"budgetRequests,omitempty"`
	BudgetCPU      float64 `json:"budgetCPU,omitempty"`
	WindowSeconds  float64 `json:"windowSeconds"`
	Nodes          int     `json:"nodesSimulated"`
	// Maximum is nil if no maximum is within the budget.
	Maximum *Load `json:"maximum"`
	// Beyond is the next lower maximum, or 300 s if no maximum is within the budget.
	Beyond *Load `json:"beyond,omitempty"`
}

// Load is the cost of a maximum in its busiest window. The margins are the share of the budget
// that is left. They are negative if the cost is above the budget, and nil without a limit.
type Load struct {
	Seconds        float64  `json:"seconds"`
	Requests       float64  `json:"requests"`
	CPU            float64  `json:"cpu"`
	RequestsMargin *float64 `json:"requestsMargin,omitempty"`
	CPUMargin      *float64 `json:"cpuMargin,omitempty"`
}

// New returns the report of a whole result. Each series has a point every step. A step of 0
// gives about a dozen points.
func New(r *fleet.Result, rec *fleet.Recommendation, step time.Duration) *Report {
	o := &r.Options
	if step == 0 {
		step = niceStep(o.For, 12)
	}
	all := float64(o.Nodes) * float64(o.Pods*o.Containers)
	report := &Report{
		Workload: o.String(), Nodes: o.Nodes, Containers: o.Nodes * o.Pods * o.Containers, Seconds: o.For.Seconds(), Seed: o.Seed, step: step,
		Costs: Costs{o.RequestsPerRestart, o.EventsPerRestart, o.RequestLimit, o.EventLimit, o.CPUPerRestart.Seconds(), o.CPUPerRequest.Seconds(), o.CPUIdle, o.APIServerCPUPerRequest.Seconds()},
	}
	var base []Point
	for i := range r.Curves {
		s, c := &r.Curves[i], o.Curves[i]
		total, requests, busiest := float64(s.Total()), 0.0, 0.0
		for _, n := range s.Requests {
			requests += float64(n) / 1000
			busiest = max(busiest, float64(n)/1000)
		}
		perStep := float64(fleet.Step) / float64(o.For)
		curve := Curve{
			Name: c.Name, InitialSeconds: c.Initial.Seconds(), MaximumSeconds: c.Max.Seconds(), DelayFirst: c.DelayFirst,
			Restarts: s.Total(), RestartsPerContainer: total / all,
			RequestsNode: requests * perStep / float64(o.Nodes), RequestsFleet: requests * perStep,
			RequestsNodeBusiest: float64(s.PeakRequests) / 1000, RequestsFleetBusiest: busiest,
			CPU:          o.Costs.CPU(total/float64(o.Nodes), requests/float64(o.Nodes), o.For),
			CPUBusiest:   s.PeakCPU,
			APIServerCPU: requests * o.APIServerCPUPerRequest.Seconds() / o.For.Seconds(),
			Completed:    s.Completed, Series: series(s, all, o.For, step, base),
		}
		if time := s.UpMillis + s.DownMillis; time > 0 {
			curve.Down = float64(s.DownMillis) / float64(time)
		}
		if i == 0 {
			base = curve.Series
		} else {
			curve.ExcessPerContainer = curve.RestartsPerContainer - report.Curves[0].RestartsPerContainer
		}
		for j := range s.Recoveries {
			curve.Recoveries = append(curve.Recoveries, recovery(s, &s.Recoveries[j]))
		}
		report.Curves = append(report.Curves, curve)
	}
	if rec != nil {
		report.Recommendation = recommendation(rec)
	}
	return report
}

// steps are the candidates of niceStep.
var steps = []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
	2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// niceStep returns a round step that gives about the given number of points.
func niceStep(length time.Duration, points int) time.Duration {
	for _, s := range steps {
		if length/s <= time.Duration(points) {
			return s
		}
	}
	return steps[len(steps)-1]
}

// series has a point every step, and one at the end.
func series(s *fleet.CurveResult, all float64, length, step time.Duration, base []Point) []Point {
	points := []Point{}
	var restarts, requests uint64
	begin := time.Duration(0)
	for i := range s.Restarts {
		restarts += s.Restarts[i]
		requests += s.Requests[i]
		end := min(time.Duration(i+1)*fleet.Step, length)
		if end%step != 0 && end != length {
			continue
		}
		p := Point{
			AfterSeconds: end.Seconds(), RestartsPerContainer: float64(restarts) / all,
			Requests: float64(requests) / 1000 * float64(fleet.Step) / float64(end-begin),
		}
		if len(points) < len(base) {
			p.ExcessPerContainer = p.RestartsPerContainer - base[len(points)].RestartsPerContainer
		}
		points, requests, begin = append(points, p), 0, end
	}
	return points
}

func recovery(s *fleet.CurveResult, r *fleet.Recovery) Recovery {
	quantile := func(share float64) *float64 {
		d, ok := s.Quantile(r, share)
		if !ok {
			return nil
		}
		seconds := d.Seconds()
		return &seconds
	}
	return Recovery{BackSeconds: r.Back.Seconds(), Containers: r.Failed(), P50: quantile(0.5), P99: quantile(0.99), Longest: quantile(1), Never: r.Never}
}

func recommendation(r *fleet.Recommendation) *Recommendation {
	load := func(l *fleet.Load) *Load {
		if l == nil {
			return nil
		}
		margin := func(budget, used float64) *float64 {
			if budget == 0 {
				return nil
			}
			m := (budget - used) / budget
			return &m
		}
		return &Load{
			Seconds: l.Curve.Max.Seconds(), Requests: l.Requests, CPU: l.CPU,
			RequestsMargin: margin(r.Budget.Requests, l.Requests), CPUMargin: margin(r.Budget.CPU, l.CPU),
		}
	}
	return &Recommendation{
		BudgetRequests: r.Budget.Requests, BudgetCPU: r.Budget.CPU, WindowSeconds: r.Budget.Window.Seconds(), Nodes: r.Nodes,
		Maximum: load(r.Best), Beyond: load(r.Before),
	}
}

// CheckStep returns an error unless a series can have a point every step.
func CheckStep(step, length time.Duration) error {
	const most = 100_000
	switch {
	case step == 0:
		return nil
	case step < fleet.Step || step%fleet.Step != 0 || step > length:
		return fmt.Errorf("step: %v: must be a multiple of %v, and at most the simulated time, %v", step, fleet.Step, length)
	case length/step > most:
		return fmt.Errorf("step: %v: must be longer: it gives more than %d points", step, most)
	}
	return nil
}
