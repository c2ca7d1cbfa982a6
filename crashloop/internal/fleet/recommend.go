// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"time"
)

// Budget limits the cost of restarts. A limit of 0 means no limit.
type Budget struct {
	// Requests is the maximum number of API requests of all nodes per second.
	Requests float64
	// CPU is the maximum number of processors that a kubelet uses, including CPUIdle.
	CPU float64
	// Window is the time over which both are averaged. Windows do not overlap.
	Window time.Duration
}

// Load is the cost of a curve in its busiest window of a Budget.
type Load struct {
	Curve    Curve
	Requests float64
	CPU      float64
}

// Recommendation is the recommended curve for a Budget.
type Recommendation struct {
	Budget Budget
	// Nodes is the number of simulated nodes, from which the load of all is extrapolated.
	Nodes int
	// Best is the first candidate within the budget, or nil if there is none.
	Best *Load
	// Before is the candidate before Best, or the last one if Best is nil. It is nil if
	// the first one is the best.
	Before *Load
}

const (
	// sample is the minimum number of containers that a recommendation simulates, if it does not
	// simulate all of them.
	sample = 250
	// mostSample is the maximum number of restarts of these containers.
	mostSample = 5e7
)

// Validate returns an error unless the budget has a limit, a curve could stay within it, and the
// search through the candidates simulates a bounded number of restarts.
func (b Budget) Validate(o *Options, candidates []Curve) error {
	switch {
	case !(b.Requests >= 0 && b.Requests <= 1e12):
		return fmt.Errorf("budget-requests: %v: must be more than 0 and at most 1e12", b.Requests)
	case !(b.CPU >= 0 && b.CPU <= mostCost):
		return fmt.Errorf("budget-cpu: %v: must be more than 0 and at most %.0f", b.CPU, mostCost)
	case b.Requests == 0 && b.CPU == 0:
		return errors.New("budget-requests, budget-cpu: one of them must be set")
	case b.CPU > 0 && b.CPU <= o.CPUIdle:
		return fmt.Errorf("budget-cpu: %v: must be more than a kubelet uses without restarts, %v", b.CPU, o.CPUIdle)
	case b.Window < Step || b.Window > o.For || b.Window%Step != 0:
		return fmt.Errorf("budget-window: %v: must be a multiple of %v, and at most the simulated time, %v", b.Window, Step, o.For)
	}
	part := *o
	part.Nodes = o.sampled()
	if n := part.estimate(candidates[0]); n > mostSample {
		return fmt.Errorf("budget: in %v there are too many restarts to look for a maximum: a shorter time, such as 1h, is enough", o.For)
	}
	return nil
}

// sampled returns the number of nodes that a recommendation simulates.
func (o *Options) sampled() int { return min(o.Nodes, max(sample/(o.Pods*o.Containers), 1)) }

// Recommend returns the first candidate that stays within a budget. The candidates are in order
// of preference, with increasing maxima. Recommend ignores o.Curves. An error is one of Validate.
func Recommend(o Options, b Budget, candidates []Curve) (*Recommendation, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := b.Validate(&o, candidates); err != nil {
		return nil, err
	}
	r := &Recommendation{Budget: b, Nodes: o.sampled()}
	for i, c := range candidates {
		l := o.load(c, b, r.Nodes, true)
		if l != nil {
			r.Best = l
		} else if i < len(candidates)-1 {
			continue
		}
		if r.Best == nil {
			i++
		}
		if i > 0 {
			r.Before = o.load(candidates[i-1], b, r.Nodes, false)
		}
		return r, nil
	}
	return r, nil
}

// load returns the cost of a curve. With stop, it returns nil as soon as the cost exceeds the budget.
func (o *Options) load(c Curve, b Budget, nodes int, stop bool) *Load {
	steps := int((o.For + Step - 1) / Step)
	doing, others := make([]activity, steps), make([]uint64, steps) // of one node, and the requests of the nodes before it
	p := newPods(o, c, steps)
	scale := float64(o.Nodes) / float64(nodes) / 1000 / b.Window.Seconds()
	most := Load{Curve: c}
	note := func() {
		var restarts, mine, all uint64 // in a window
		for i, requests := range o.requests(doing) {
			if i%int(b.Window/Step) == 0 {
				restarts, mine, all = 0, 0, 0
			}
			restarts += doing[i].restarts
			mine += requests
			all += requests + others[i]
			most.CPU = max(most.CPU, o.CPU(float64(restarts), float64(mine)/1000, b.Window))
			most.Requests = max(most.Requests, scale*float64(all))
		}
	}
	for node := range nodes {
		clear(doing)
		for i := range o.Pods {
			p.walkPod((node*o.Pods+i)*o.Containers, doing, nil)
			if i%8 != 0 && i < o.Pods-1 {
				continue
			}
			if note(); stop && (b.CPU > 0 && most.CPU > b.CPU || b.Requests > 0 && most.Requests > b.Requests) {
				return nil
			}
		}
		for i, requests := range o.requests(doing) {
			others[i] += requests
		}
	}
	return &most
}
