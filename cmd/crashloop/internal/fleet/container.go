// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// origin is when a simulation begins. No decision depends on it: times are compared with each
// other alone. One with a monotonic reading makes that twice as fast.
var origin = time.Now()

// never is after every simulated time.
const never = time.Duration(math.MaxInt64)

// walker takes one container after the other through the simulated time with one curve.
type walker struct {
	*Options
	backOff *backoff.Backoff
	draws   rand.PCG
	random  *rand.Rand
	// spec is the container for the restart policy.
	spec  restartpod.Container
	gates restartpod.Gates
	// restarted is called for each restart, with its time.
	restarted func(time.Duration)
	// returns has when what containers wait for is back: the end of each outage, and Recover.
	returns []time.Duration
	container
}

// container is what comes of one.
type container struct {
	restarts  uint64
	up, down  time.Duration
	completed bool
	// hit reports of each outage whether the container depends on what is away.
	hit []bool
	// failed and recovered are of each of the walker's returns: whether the container exited
	// for want of it, and how long after it the container started, or never.
	failed    []bool
	recovered []time.Duration
}

// key is that of each container in turn. One key in the back-off is faster than many, and
// decisions for one do not depend on others.
const key = "container"

func newWalker(o *Options, curve backoff.Curve, restarted func(time.Duration)) *walker {
	w := &walker{Options: o, backOff: kuberuntime.NewBackOff(nil, curve), restarted: restarted, returns: o.returns()}
	w.random = rand.New(&w.draws)
	w.spec.Policy = v1.ContainerRestartPolicy(o.Policy)
	w.hit, w.failed, w.recovered = make([]bool, len(o.Outages)), make([]bool, len(w.returns)), make([]time.Duration, len(w.returns))
	return w
}

// returns are the times since which containers recover.
func (o *Options) returns() (list []time.Duration) {
	for _, out := range o.Outages {
		list = append(list, out.End())
	}
	if o.Recover > 0 {
		list = append(list, o.Recover)
	}
	return list
}

// walk takes the container with a number, counted over all nodes, through the time.
func (w *walker) walk(number int) {
	failing := w.begin(number)
	var now time.Duration // when it starts
	if w.Stagger > 0 {
		now = time.Duration(w.random.Int64N(int64(w.Stagger)))
	}
	w.backOff.StartAt(key, origin.Add(now))
	for instance := 0; ; instance++ {
		exit, code := w.exit(failing, now, instance)
		if exit >= w.For {
			w.up += w.For - now
			break
		}
		w.up += exit - now
		w.fail(failing, exit)
		if w.gates.OnExit(&w.spec, code) != v1.ContainerRestartRuleActionRestart {
			w.completed = true
			break
		}
		now = w.restart(exit)
		w.down += min(now, w.For) - exit
		w.recover(failing, exit, now)
		if now >= w.For {
			break
		}
		w.restarts++
		w.restarted(now)
	}
}

// begin prepares for a container, and reports whether it is one that fails.
func (w *walker) begin(number int) bool {
	w.backOff.Reset(key)
	w.draws.Seed(mix(w.Seed), mix(mix(w.Seed)+uint64(number)))
	w.restarts, w.up, w.down, w.completed = 0, 0, 0, false
	clear(w.failed)
	clear(w.recovered)
	failing := picked(number, w.Fail)
	healthy := number - quota(number, w.Fail)
	for i, out := range w.Outages {
		if w.ofAll(out) {
			w.hit[i] = picked(number, out.Share)
		} else {
			w.hit[i] = !failing && picked(healthy, out.Share)
		}
	}
	return failing
}

// quota is how many of the first n are picked by a share, and picked reports whether the one
// with the number n is. So a share of 0.1 picks 11 of 110, and not about 11.
func quota(n int, share float64) int { return int(math.Round(float64(n) * share)) }

func picked(n int, share float64) bool { return quota(n+1, share) > quota(n, share) }

// mix is the finalizer of splitmix64. It makes seeds of adjacent containers unlike.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// exit is when an instance that starts at a time exits, or never, and with what code.
func (w *walker) exit(failing bool, start time.Duration, instance int) (time.Duration, int32) {
	life := w.Lives.Of(instance)
	if life.Runs {
		return never, 0
	}
	at := w.outage(start, instance)
	if failing && (w.Recover == 0 || start < w.Recover) {
		at = min(at, start+life.Draw(w.random))
	}
	if at == never {
		return never, 0
	}
	if w.Succeed > 0 && w.random.Float64() < w.Succeed {
		return at, 0
	}
	return at, life.Code
}

// outage is when an instance that starts at a time exits because a dependency is away.
func (w *walker) outage(start time.Duration, instance int) time.Duration {
	at := never
	for i, out := range w.Outages {
		if !w.hit[i] || out.End() <= start {
			continue
		}
		if exit := max(start, out.From) + w.Lives.Of(instance).Draw(w.random); exit < out.End() {
			at = min(at, exit)
		}
	}
	return at
}

// fail notes of which returns the container needs one. While another dependency of its is still
// away, a return brings it nothing: that of the other one counts.
func (w *walker) fail(failing bool, exit time.Duration) {
	for i, back := range w.returns {
		if i == len(w.Outages) {
			w.failed[i] = w.failed[i] || failing && exit < back
		} else if w.hit[i] && exit >= w.Outages[i].From && exit < back && !w.away(back) {
			w.failed[i] = true
		}
	}
}

// away reports whether a dependency of the container is away.
func (w *walker) away(now time.Duration) bool {
	for i, out := range w.Outages {
		if w.hit[i] && out.From <= now && now < out.End() {
			return true
		}
	}
	return false
}

// restart asks the back-off as a kubelet does: after the exit, and when the wait is over.
func (w *walker) restart(exit time.Duration) time.Duration {
	event := origin.Add(exit)
	d := w.backOff.DecideAt(key, event, event)
	if d.Allowed {
		return exit
	}
	at := d.RetryAt.Sub(origin)
	if at < w.For {
		w.backOff.DecideAt(key, event, d.RetryAt)
	}
	return at
}

// recover notes how long after a return the container starts.
func (w *walker) recover(failing bool, exit, start time.Duration) {
	for i, back := range w.returns {
		mine := w.failed[i] && start >= back && w.recovered[i] == 0
		if i < len(w.Outages) {
			mine = mine && exit < back
		}
		if !mine {
			continue
		}
		if w.recovered[i] = start - back; start >= w.For {
			w.recovered[i] = never
		}
	}
}
