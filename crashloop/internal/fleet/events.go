// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"iter"
	"math"
	"time"
)

// client-go's EventSourceObjectSpamFilter lets so many events of a type through for a pod at once, and then one in spamPeriod.
// Before v1.32 it did not distinguish types.
const (
	spamBurst  = 25
	spamPeriod = 5 * time.Minute
)

// eventQueue is the number of events that wait in client-go's recorder before the filter. It drops more.
const eventQueue = 1000

// activity is what happens on a node in a Step.
type activity struct {
	restarts uint64
	// events is the number of events of the restarts, and wanted how many of them the filters let through if none is dropped.
	events, wanted uint64
}

// podStep has the starts of a pod's containers in a Step: first ones, restarts, and how many restarts had to wait.
type podStep struct {
	firsts, restarts, waits uint32
}

// pods simulates pods one after another.
type pods struct {
	*walker
	steps []podStep
}

func newPods(o *Options, c Curve, steps int) *pods {
	p := &pods{steps: make([]podStep, steps)}
	p.walker = newWalker(o, c.Curve, func(at time.Duration, kind start) {
		s := &p.steps[at/Step]
		switch kind {
		case first:
			s.firsts++
		case waited:
			s.waits++
			fallthrough
		case undelayed:
			s.restarts++
		}
	})
	return p
}

// walkPod simulates the containers of a pod, which have numbers from the given one on, and adds them to the node. If done is not nil, it
// is called after each container.
func (p *pods) walkPod(number int, node []activity, done func(*container)) {
	clear(p.steps)
	for i := range p.Containers {
		p.walk(number + i)
		if done != nil {
			done(&p.container)
		}
	}
	var normal, warning spamFilter = spamBurst, spamBurst
	each := uint64(max(0, p.EventsPerRestart-1))
	for i := range p.steps {
		normal.refill()
		warning.refill()
		s := &p.steps[i]
		if *s == (podStep{}) {
			continue
		}
		normal.pass(each * uint64(s.firsts))
		n := each * uint64(s.restarts)
		a := &node[i]
		a.restarts += uint64(s.restarts)
		a.events += n
		a.wanted += normal.pass(n)
		if p.EventsPerRestart > 0 {
			a.events += uint64(s.waits)
			a.wanted += warning.pass(uint64(s.waits))
		}
	}
}

// spamFilter is the number of events of a type that the filter of a pod lets through.
type spamFilter float64

// refill adds what one more Step allows.
func (f *spamFilter) refill() { *f = min(spamBurst, *f+spamFilter(Step)/spamFilter(spamPeriod)) }

// pass returns how many of n events are let through.
func (f *spamFilter) pass(n uint64) uint64 {
	n = min(n, uint64(*f))
	*f -= spamFilter(n)
	return n
}

// requests returns how many API requests a node sends in each Step, in thousandths. Statuses wait for the limit, but a later one of
// the same pod replaces an earlier one. Of events, a queue waits. A dropped event uses up nothing of the filter, so that a later one
// is let through instead.
func (o *Options) requests(steps []activity) iter.Seq2[int, uint64] {
	statusLimit, eventLimit := perStep(o.RequestLimit), perStep(o.EventLimit)
	return func(yield func(int, uint64) bool) {
		var statuses, queued, wanted uint64
		for i, a := range steps {
			statuses += a.restarts * milli(o.RequestsPerRestart)
			sent := min(statuses, statusLimit)
			statuses = min(statuses-sent, milli(float64(o.Pods)))

			wanted += a.wanted * 1000
			queued = min(queued+a.events*1000, wanted)
			events := min(queued, eventLimit)
			queued = min(queued-events, eventQueue*1000)
			wanted -= events
			if !yield(i, sent+events) {
				return
			}
		}
	}
}

// perStep returns a limit per second as thousandths in a Step.
func perStep(limit float64) uint64 {
	if limit == 0 {
		return math.MaxUint64
	}
	return milli(limit * Step.Seconds())
}
