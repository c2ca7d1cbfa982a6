// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"slices"
	"time"
)

// Result is the result of a run. It has only sums of integers, and maxima, so it does not depend on
// the order in which nodes are added.
type Result struct {
	Options Options
	Curves  []CurveResult
}

// CurveResult is the result of the containers with one curve.
type CurveResult struct {
	// Restarts and Requests have for each Step the restarts of all nodes, and their API requests
	// in thousandths.
	Restarts, Requests []uint64
	// PeakRequests is the maximum of one node's API requests in a Step, in thousandths, and PeakCPU that of the processors that
	// its kubelet uses.
	PeakRequests uint64
	PeakCPU      float64
	// Completed is the number of containers that ended with success.
	Completed uint64
	// UpMillis and DownMillis are the times in which containers ran and waited, in milliseconds.
	UpMillis, DownMillis uint64
	// Resolution is the unit of the times in Recoveries.
	Resolution time.Duration
	// Recoveries has one entry for each outage and, if Recover is set, one for it.
	Recoveries []Recovery
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
func newResult(o Options) *Result {
	r := &Result{Options: o}
	steps := int((o.For + Step - 1) / Step)
	for _, c := range o.Curves {
		sums := CurveResult{Restarts: make([]uint64, steps), Requests: make([]uint64, steps)}
		// No wait exceeds the maximum, so this gives about 3000 counts.
		sums.Resolution = max(time.Millisecond, (c.Max/3000 + time.Millisecond - 1).Truncate(time.Millisecond))
		for _, back := range o.returns() {
			sums.Recoveries = append(sums.Recoveries, Recovery{Back: back})
		}
		r.Curves = append(r.Curves, sums)
	}
	return r
}

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
		s.PeakRequests, s.PeakCPU = max(s.PeakRequests, o.PeakRequests), max(s.PeakCPU, o.PeakCPU)
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
