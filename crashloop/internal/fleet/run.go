// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Run simulates the nodes on all processors. If progress is not nil, several
// goroutines call it concurrently, after each node. An error is one of Validate.
func Run(o Options, progress func(done, all int)) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var next, done atomic.Int64
	var lock sync.Mutex
	total := newResult(o)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), o.Nodes) {
		workers.Go(func() {
			part := newResult(o)
			sims := make([]*node, len(o.Curves))
			for i := range sims {
				sims[i] = newNode(&o, &part.Curves[i], o.Curves[i])
			}
			for n := int(next.Add(1)) - 1; n < o.Nodes; n = int(next.Add(1)) - 1 {
				for _, s := range sims {
					s.run(n)
				}
				if d := int(done.Add(1)); progress != nil {
					progress(d, o.Nodes)
				}
			}
			lock.Lock()
			defer lock.Unlock()
			total.add(part)
		})
	}
	workers.Wait()
	return total, nil
}

// node simulates one node after another with one curve.
type node struct {
	*pods
	sums  *CurveResult
	steps []activity
}

func newNode(o *Options, sums *CurveResult, c Curve) *node {
	steps := len(sums.Restarts)
	return &node{pods: newPods(o, c, steps), sums: sums, steps: make([]activity, steps)}
}

// run simulates the containers of a node and adds them to the sums.
func (n *node) run(number int) {
	clear(n.steps)
	for i := range n.Pods {
		n.walkPod((number*n.Pods+i)*n.Containers, n.steps, n.sums.addContainer)
	}
	for step, requests := range n.requests(n.steps) {
		restarts := n.steps[step].restarts
		n.sums.Restarts[step] += restarts
		n.sums.Requests[step] += requests
		n.sums.PeakRequests = max(n.sums.PeakRequests, requests)
		n.sums.PeakCPU = max(n.sums.PeakCPU, n.CPU(float64(restarts), float64(requests)/1000, Step))
	}
}

// Restarts returns the times of the restarts of a fleet's first container with a curve. An error
// is one of Validate.
func Restarts(o Options, c Curve) (times []time.Duration, err error) {
	o.Curves = []Curve{c}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	newWalker(&o, c.Curve, func(at time.Duration, kind start) {
		if kind != first {
			times = append(times, at)
		}
	}).walk(0)
	return times, nil
}
