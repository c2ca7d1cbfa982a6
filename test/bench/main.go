// SPDX-License-Identifier: Apache-2.0

// Command bench compares backoff.Backoff with client-go's flowcontrol.Backoff
// in one run and prints both figures and their ratio. It exits with status 1
// when a ratio or the time that GC holds the lock misses its goal.
package main

import (
	"fmt"
	"math"
	"math/rand"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

const (
	initial = 10 * time.Second
	limit   = 300 * time.Second
	// rounds is how often each figure is measured. The two kinds take turns, so that
	// a change in the machine's speed affects both. The result is the minimum, because
	// other work on the machine only adds time. For the longest time that something
	// took it is the median, because the minimum may come from a round that missed
	// that moment.
	rounds = 5
	calls  = 1_000_000
)

// kind is one of the two implementations.
type kind interface {
	Get(id string) time.Duration
	Next(id string, eventTime time.Time)
	IsInBackOffSince(id string, eventTime time.Time) bool
	GC()
}

// still is a clock that does not move. Reading the real time costs more than a
// decision and would hide it.
type still struct {
	clock.RealClock
	now time.Time
}

func (c still) Now() time.Time { return c.now }

func (c still) Since(t time.Time) time.Duration { return c.now.Sub(t) }

var at = still{now: time.Now()}

// moving is a clock that was moved from at.
type moving struct {
	clock.RealClock
	by atomic.Int64
}

func (c *moving) Now() time.Time { return at.now.Add(time.Duration(c.by.Load())) }

func (c *moving) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func upstream() kind {
	b := flowcontrol.NewBackOff(initial, limit)
	b.Clock = at
	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
	return b
}

func ours() kind {
	b := backoff.NewBackOff(initial, limit)
	b.Clock = at
	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
	return b
}

// decide asks whether a restart may happen and advances the key if so, as the
// kubelet does: with two calls upstream, with one here.
func decide(b kind, id string, exit time.Time) {
	if b, ok := b.(*backoff.Backoff); ok {
		b.Decide(id, exit, at.now)
		return
	}
	if b.IsInBackOffSince(id, exit) {
		b.Get(id)
	} else {
		b.Next(id, exit)
	}
}

// load is a set of keys and a random order of calls. Every key is used once before
// any key is used again. The calls use copies of the strings, because real callers
// build the key for each call.
type load struct {
	keys  []string
	asked []string
}

func newLoad(n, length int) load {
	r := rand.New(rand.NewSource(1))
	l := load{keys: make([]string, n), asked: make([]string, calls)}
	for i := range l.keys {
		l.keys[i] = fmt.Sprintf("%0*x", length, r.Uint64())
	}
	order := r.Perm(n)
	for i := range l.asked {
		l.asked[i] = strings.Clone(l.keys[order[i%n]])
	}
	return l
}

func (l load) fill(b kind) kind {
	for _, key := range l.keys {
		b.Next(key, at.now)
	}
	return b
}

// row is one comparison.
type row struct {
	name  string
	unit  string
	goal  float64 // of the ratio, 0 for none
	limit float64 // of our figure, 0 for none
	// rank is the index of the result in the sorted figures of the rounds.
	rank int
	// measure prepares one round and returns its figure.
	measure func(l load, newKind func() kind) float64
}

const chunk = 10_000

// perCall times a million calls of f in the load's order, in chunks, and returns the
// time of a call in the fastest chunk. Other work on the machine slows down only some
// of them.
func perCall(f func(b kind, id string)) func(load, func() kind) float64 {
	return func(l load, newKind func() kind) float64 {
		b := l.fill(newKind())
		runtime.GC()
		fastest := time.Duration(math.MaxInt64)
		for asked := range slices.Chunk(l.asked, chunk) {
			begin := time.Now()
			for _, id := range asked {
				f(b, id)
			}
			fastest = min(fastest, time.Since(begin))
		}
		return float64(fastest.Nanoseconds()) / chunk
	}
}

// decideAllowed times decisions that allow the start. Before each pass over the keys
// the clock moves by more than the limit, and each container has exited a moment
// after its start.
func decideAllowed(l load, newKind func() kind) float64 {
	b := l.fill(newKind())
	runtime.GC()
	fastest := time.Duration(math.MaxInt64)
	now := at.now
	for i := 0; i < len(l.asked); {
		begin := time.Now()
		end := min(i+chunk, len(l.asked))
		for i < end {
			exit := now.Round(0).Add(time.Second)
			now = now.Add(limit + 2*time.Second)
			setClock(b, still{now: now})
			for pass := min(i+len(l.keys), end); i < pass; i++ {
				decide(b, l.asked[i], exit)
			}
		}
		fastest = min(fastest, time.Since(begin))
	}
	return float64(fastest.Nanoseconds()) / chunk
}

func rows(n int) []row {
	// A small node, a full one, and more than any node has.
	decideGoal, memoryGoal, holdLimit := 0.0, 0.0, 0.0
	switch {
	case n < 110:
		memoryGoal = 1
	case n == 110:
		decideGoal, memoryGoal = 0.75, 1
	case n >= 1_000_000:
		decideGoal, memoryGoal, holdLimit = 0.9, 1.2, 1000
	}
	recent := at.now.Round(0)
	return []row{
		{name: "decide, allowed", unit: "ns", goal: decideGoal, measure: decideAllowed},
		{name: "decide, waiting", unit: "ns", measure: perCall(func(b kind, id string) { decide(b, id, recent) })},
		{name: "get", unit: "ns", measure: perCall(func(b kind, id string) { b.Get(id) })},
		{name: "insert", unit: "ns", measure: insert},
		{name: "longest insert", unit: "us", rank: rounds / 2, measure: longestInsert},
		{name: "decide, allowed, 2 goroutines", unit: "ns", measure: parallel},
		{name: "memory per key, key excluded", unit: "B", goal: memoryGoal, measure: memory},
		{name: "the same after GC removed them", unit: "B", limit: 5, measure: memoryAfterGC},
		{name: "longest time GC holds the lock", unit: "us", limit: holdLimit, rank: rounds / 2, measure: gcHold(0)},
		{name: "the same, removing every key", unit: "us", limit: holdLimit, rank: rounds / 2, measure: gcHold(time.Hour)},
	}
}

func insert(l load, newKind func() kind) float64 {
	repeat := max(1, 100_000/len(l.keys))
	var spent time.Duration
	for range repeat {
		b := newKind()
		begin := time.Now()
		l.fill(b)
		spent += time.Since(begin)
	}
	return float64(spent.Nanoseconds()) / float64(repeat*len(l.keys))
}

func longestInsert(l load, newKind func() kind) float64 {
	b := newKind()
	var longest time.Duration
	for _, key := range l.keys {
		begin := time.Now()
		b.Next(key, at.now)
		longest = max(longest, time.Since(begin))
	}
	return float64(longest.Nanoseconds()) / 1000
}

// parallel is decideAllowed with two goroutines. Each has its own keys, because one
// event allows one start. They share a clock, and each moves it before a new pass
// over its keys.
func parallel(l load, newKind func() kind) float64 {
	b := l.fill(newKind())
	c := &moving{}
	setClock(b, c)
	runtime.GC()
	var wg sync.WaitGroup
	begin := time.Now()
	for first := range 2 {
		wg.Go(func() {
			for i := first; i < len(l.asked); {
				exit := c.Now().Round(0).Add(time.Second)
				c.by.Add(int64(limit + 2*time.Second))
				// Every other is of a key of its own, as the number of keys is even.
				for pass := min(i+len(l.keys), len(l.asked)); i < pass; i += 2 {
					decide(b, l.asked[i], exit)
				}
			}
		})
	}
	wg.Wait()
	return float64(time.Since(begin).Nanoseconds()) / float64(len(l.asked))
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func memory(l load, newKind func() kind) float64 {
	return memoryAfter(l, newKind, func(kind) {})
}

func memoryAfterGC(l load, newKind func() kind) float64 {
	return memoryAfter(l, newKind, func(b kind) {
		setClock(b, still{now: at.now.Add(time.Hour)})
		b.GC()
	})
}

func memoryAfter(l load, newKind func() kind, f func(kind)) float64 {
	// A single small set is lost in the noise of the rest of the heap.
	copies := max(1, 100_000/len(l.keys))
	kept := make([]kind, 0, copies)
	before := heap()
	for range copies {
		b := l.fill(newKind())
		f(b)
		kept = append(kept, b)
	}
	figure := (heap() - before) / float64(copies*len(l.keys))
	runtime.KeepAlive(kept)
	return figure
}

func setClock(b kind, c clock.Clock) {
	switch b := b.(type) {
	case *backoff.Backoff:
		b.Clock = c
	case *flowcontrol.Backoff:
		b.Clock = c
	}
}

// gcHold calls Get in a loop while GC runs, the given time after all keys advanced,
// and returns the longest time that a call took.
func gcHold(age time.Duration) func(load, func() kind) float64 {
	return func(l load, newKind func() kind) float64 {
		b := l.fill(newKind())
		setClock(b, still{now: at.now.Add(age)})
		runtime.GC()
		done := make(chan struct{})
		go func() {
			b.GC()
			close(done)
		}()
		var longest time.Duration
		for {
			begin := time.Now()
			b.Get(l.keys[0])
			longest = max(longest, time.Since(begin))
			select {
			case <-done:
				return float64(longest.Nanoseconds()) / 1000
			default:
			}
		}
	}
}

func main() {
	missed := 0
	only := ""
	if len(os.Args) > 1 {
		only = os.Args[1]
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "keys\twhat\tupstream\tours\tratio\tgoal\t")
	for _, size := range []struct{ keys, length int }{{30, 16}, {110, 16}, {110, 60}, {100_000, 16}, {1_000_000, 16}, {1_000_000, 60}} {
		l := newLoad(size.keys, size.length)
		for _, r := range rows(size.keys) {
			if !strings.Contains(r.name, only) {
				continue
			}
			fmt.Fprintf(os.Stderr, "measuring with %d keys of %d bytes: %s\n", size.keys, size.length, r.name)
			var a, b []float64
			for range rounds {
				a = append(a, r.measure(l, upstream))
				b = append(b, r.measure(l, ours))
			}
			slices.Sort(a)
			slices.Sort(b)
			theirs, own := a[r.rank], b[r.rank]
			goal := "-"
			if r.goal != 0 {
				goal = fmt.Sprintf("ratio <= %.2f", r.goal)
			}
			if r.limit != 0 {
				goal = fmt.Sprintf("<= %.0f %s", r.limit, r.unit)
			}
			if r.goal != 0 && own/theirs > r.goal || r.limit != 0 && own > r.limit {
				goal += " MISSED"
				missed++
			}
			fmt.Fprintf(out, "%d x %d B\t%s\t%.1f %s\t%.1f %s\t%.2f\t%s\t\n", size.keys, size.length, r.name, theirs, r.unit, own, r.unit, own/theirs, goal)
		}
	}
	out.Flush()
	if missed > 0 {
		fmt.Printf("%d goals missed\n", missed)
		os.Exit(1)
	}
}
