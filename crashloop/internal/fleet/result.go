// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
)

// Result is the result of a run or of a shard. It has only sums and maxima of integers, so shards
// add up to exactly the result of one run.
type Result struct {
	// Format is the format of the encoding. Decode refuses results of other versions.
	Format  string
	Options Options
	Shard   Shard
	Curves  []CurveResult
}

// Format is the format of the results that this version writes and reads.
const Format = "crashloop-plan/1"

// CurveResult is the result of the containers with one curve.
type CurveResult struct {
	// Restarts and Requests have for each Step the restarts of all nodes, and their API requests
	// in thousandths.
	Restarts, Requests []uint64
	// Peak is the greatest number of restarts of one node in one Step.
	Peak Peak
	// Completed is the number of containers that ended with success.
	Completed uint64
	// UpMillis and DownMillis are the times in which containers ran and waited, in milliseconds.
	UpMillis, DownMillis uint64
	// Resolution is the unit of the times in Recoveries.
	Resolution time.Duration
	// Recoveries has one entry for each outage and, if Recover is set, one for it.
	Recoveries []Recovery
}

// Peak is a number of restarts of a node in a step. Of equal peaks the first node and step count.
type Peak struct {
	Restarts   uint64
	Node, Step int
}

func (p *Peak) add(q Peak) {
	if cmp.Or(cmp.Compare(q.Restarts, p.Restarts), cmp.Compare(p.Node, q.Node), cmp.Compare(p.Step, q.Step)) > 0 {
		*p = q
	}
}

// Recovery has the times from the end of an outage, or from Recover, to the starts of the
// containers that had failed because of it.
type Recovery struct {
	// Back is the end of the outage, or Recover.
	Back time.Duration
	// Counts has how many containers took each multiple of the Resolution.
	Counts []uint64
	// Longest is the longest time of a container that started.
	Longest time.Duration
	// Never is the number of containers that had not started by the end.
	Never uint64
}

// newResult returns the result before any node is added.
func newResult(o Options, shard Shard) *Result {
	r := &Result{Format: Format, Options: o, Shard: shard}
	steps := int((o.For + Step - 1) / Step)
	for _, c := range o.Curves {
		sums := CurveResult{Restarts: make([]uint64, steps), Requests: make([]uint64, steps), Peak: noPeak}
		// No wait exceeds the maximum, so this gives about 3000 counts.
		sums.Resolution = max(time.Millisecond, (c.Max/3000 + time.Millisecond - 1).Truncate(time.Millisecond))
		for _, back := range o.returns() {
			sums.Recoveries = append(sums.Recoveries, Recovery{Back: back})
		}
		r.Curves = append(r.Curves, sums)
	}
	return r
}

// noPeak is less than any peak.
var noPeak = Peak{Node: math.MaxInt, Step: math.MaxInt}

// mostCounts bounds the counts of a Recovery. Only containers that fail long after Recover exceed it.
const mostCounts = 100_000

// addContainer adds the result of a container.
func (s *CurveResult) addContainer(c *container) {
	resolution := s.Resolution
	s.UpMillis += uint64(c.up.Milliseconds())
	s.DownMillis += uint64(c.down.Milliseconds())
	if c.completed {
		s.Completed++
	}
	for i, failed := range c.failed {
		r := &s.Recoveries[i]
		switch d := c.recovered[i]; {
		case !failed, c.completed && d == 0:
		case d == never:
			r.Never++
		default:
			n := int(min((d+resolution/2)/resolution, mostCounts))
			r.Counts = addCount(r.Counts, n, 1)
			r.Longest = max(r.Longest, d)
		}
	}
}

func addCount(counts []uint64, n int, by uint64) []uint64 {
	if missing := n + 1 - len(counts); missing > 0 {
		counts = append(counts, make([]uint64, missing)...)
	}
	counts[n] += by
	return counts
}

// add adds the sums of other, which has the same Options.
func (r *Result) add(other *Result) {
	for i := range r.Curves {
		s, o := &r.Curves[i], &other.Curves[i]
		for step := range s.Restarts {
			s.Restarts[step] += o.Restarts[step]
			s.Requests[step] += o.Requests[step]
		}
		s.Peak.add(o.Peak)
		s.Completed += o.Completed
		s.UpMillis += o.UpMillis
		s.DownMillis += o.DownMillis
		for j := range s.Recoveries {
			a, b := &s.Recoveries[j], &o.Recoveries[j]
			for n, by := range b.Counts {
				a.Counts = addCount(a.Counts, n, by)
			}
			a.Longest = max(a.Longest, b.Longest)
			a.Never += b.Never
		}
	}
}

// Decode decodes the result of a shard. An error names the invalid part.
func Decode(data []byte) (*Result, error) {
	r := &Result{}
	var head struct{ Format string }
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if head.Format != Format {
		return nil, fmt.Errorf("format %q: must be %q, which 'crashloop plan fleet --shard' of this version writes", head.Format, Format)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if err := r.Shard.Validate(); err != nil {
		return nil, err
	}
	if err := r.Options.Validate(r.Shard.Of); err != nil {
		return nil, err
	}
	want := newResult(r.Options, r.Shard)
	whole := len(r.Curves) == len(want.Curves)
	for i := 0; whole && i < len(want.Curves); i++ {
		a, b := r.Curves[i], want.Curves[i]
		whole = len(a.Restarts) == len(b.Restarts) && len(a.Requests) == len(b.Requests) &&
			len(a.Recoveries) == len(b.Recoveries) && a.Resolution == b.Resolution && !slices.ContainsFunc(a.Recoveries, func(r Recovery) bool { return len(r.Counts) > mostCounts+1 })
	}
	if !whole {
		return nil, fmt.Errorf("truncated or edited: the lengths of the series do not match the options")
	}
	for i := range r.Curves {
		if err := r.Curves[i].plausible(&r.Options, r.Shard.nodes(r.Options.Nodes)); err != nil {
			return nil, fmt.Errorf("edited: curve %q: %w", r.Options.Curves[i].Name, err)
		}
	}
	return r, nil
}

// plausible returns an error if the simulation of this number of nodes cannot give these sums.
func (s *CurveResult) plausible(o *Options, nodes int) error {
	containers := uint64(nodes) * uint64(o.Pods) * uint64(o.Containers)
	if most := containers * uint64(o.For.Milliseconds()); s.UpMillis > most || s.DownMillis > most-s.UpMillis {
		return fmt.Errorf("%d containers cannot be up for %d ms and down for %d ms", containers, s.UpMillis, s.DownMillis)
	}
	if s.Completed > containers {
		return fmt.Errorf("%d of %d containers cannot complete", s.Completed, containers)
	}
	// Every wait except the first is at least a millisecond.
	most := uint64(o.Pods*o.Containers) * uint64(Step/time.Millisecond+2)
	p := s.Peak
	if nodes > 0 && (p.Node < 0 || p.Node >= o.Nodes || p.Step < 0 || p.Step >= len(s.Restarts) || p.Restarts > min(s.Restarts[p.Step], most)) {
		return fmt.Errorf("the peak %+v is not one of its %d steps", p, len(s.Restarts))
	}
	for step, n := range s.Restarts {
		if n > p.Restarts*uint64(nodes) {
			return fmt.Errorf("%d restarts in step %d are more than the peak %+v allows", n, step, p)
		}
		if s.Requests[step] > n*milli(o.RequestsPerRestart) {
			return fmt.Errorf("%d requests in step %d are more than %d restarts need", s.Requests[step]/1000, step, n)
		}
	}
	for i, back := range o.returns() {
		r := &s.Recoveries[i]
		if r.Back != back || r.Longest < 0 || r.Longest > o.For {
			return fmt.Errorf("a recovery after %v took %v: must be after %v, and take at most %v", r.Back, r.Longest, back, o.For)
		}
		left := containers
		for _, n := range append(slices.Clone(r.Counts), r.Never) {
			if n > left {
				return fmt.Errorf("more than %d containers cannot recover", containers)
			}
			left -= n
		}
	}
	return nil
}

// Validate returns an error unless Index is from 0 to Of-1.
func (s Shard) Validate() error {
	if s.Of < 1 || s.Of > mostNodes || s.Index < 0 || s.Index >= s.Of {
		return fmt.Errorf("shard %d/%d: must be from 0/N to N-1/N, with at most %d for N", s.Index, s.Of, mostNodes)
	}
	return nil
}

// Merge adds up the results of all shards of a run, in any order. An error names the shard that is
// missing, duplicate, or from another run.
func Merge(parts []*Result) (*Result, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("no shard to merge")
	}
	first := parts[0]
	total := newResult(first.Options, Whole)
	seen := map[int]bool{}
	for _, p := range parts {
		if !reflect.DeepEqual(p.Options, first.Options) || p.Shard.Of != first.Shard.Of {
			return nil, fmt.Errorf("shard %d/%d is from another run than shard %d/%d: all must have the same flags", p.Shard.Index, p.Shard.Of, first.Shard.Index, first.Shard.Of)
		}
		if seen[p.Shard.Index] {
			return nil, fmt.Errorf("shard %d/%d is given twice", p.Shard.Index, p.Shard.Of)
		}
		seen[p.Shard.Index] = true
		total.add(p)
	}
	for i := range first.Shard.Of {
		if !seen[i] {
			return nil, fmt.Errorf("shard %d/%d is missing: only %d of %d are given", i, first.Shard.Of, len(parts), first.Shard.Of)
		}
	}
	return total, nil
}

// Total returns the number of restarts.
func (s *CurveResult) Total() (sum uint64) {
	for _, n := range s.Restarts {
		sum += n
	}
	return sum
}

// Failed returns the number of containers that had failed before Back.
func (r *Recovery) Failed() uint64 {
	n := r.Never
	for _, count := range r.Counts {
		n += count
	}
	return n
}

// Quantile returns the time within which a share of the failed containers recovered. It returns
// false if fewer recovered.
func (s *CurveResult) Quantile(r *Recovery, share float64) (time.Duration, bool) {
	need := uint64(math.Ceil(share * float64(r.Failed())))
	var sum uint64
	i := slices.IndexFunc(r.Counts, func(n uint64) bool {
		sum += n
		return sum >= max(need, 1)
	})
	if i == mostCounts {
		return r.Longest, true
	}
	return min(time.Duration(i)*s.Resolution, r.Longest), i >= 0
}
