// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// origin is the time at which a simulation begins. No decision depends on it, because the code
// only compares times. A monotonic clock reading makes these comparisons twice as fast.
var origin = time.Now()

// never is after every simulated time.
const never = time.Duration(math.MaxInt64)

// walker simulates one container after another with one curve.
type walker struct {
	*Options
	backOff *backoff.Backoff
	draws   rand.PCG
	random  *rand.Rand
	// spec has the restart policy, for OnExit.
	spec  restartpod.Container
	gates restartpod.Gates
	// started is called for each start, with its time.
	started func(time.Duration, start)
	// returns has the times from which containers can recover: the end of each outage, and Recover.
	returns []time.Duration
	container
}

// container is the result of simulating a container.
type container struct {
	restarts  uint64
	up, down  time.Duration
	completed bool
	// hit reports for each outage whether the container needs the dependency.
	hit []bool
	// failed reports for each of the walker's returns whether the container failed because of the
	// time before it. recovered is how long after the return the container started, or never.
	failed    []bool
	recovered []time.Duration
}

// start is a kind of starts of a container.
type start int

const (
	first     start = iota
	undelayed       // a restart without a delay
	waited          // a restart after a delay
)

// key is the back-off key of every container, one after another. One key is faster than many, and
// decisions for a key do not depend on other keys.
const key = "container"

func newWalker(o *Options, curve backoff.Curve, started func(time.Duration, start)) *walker {
	w := &walker{Options: o, backOff: restart.NewBackOff(nil, curve), started: started, returns: o.returns()}
	w.random = rand.New(&w.draws)
	w.spec.Policy = v1.ContainerRestartPolicy(o.Policy)
	w.hit, w.failed, w.recovered = make([]bool, len(o.Outages)), make([]bool, len(w.returns)), make([]time.Duration, len(w.returns))
	return w
}

// returns returns the times from which containers can recover.
func (o *Options) returns() (list []time.Duration) {
	for _, out := range o.Outages {
		list = append(list, out.End())
	}
	if o.Recover > 0 {
		list = append(list, o.Recover)
	}
	return list
}

// walk simulates the container with a number, which counts over all nodes.
func (w *walker) walk(number int) {
	failing := w.begin(number)
	var now time.Duration // the time of the next start
	if w.Stagger > 0 {
		now = time.Duration(w.random.Int64N(int64(w.Stagger)))
	}
	w.backOff.DecideStart(key, origin.Add(now))
	if now < w.For {
		w.started(now, first)
	}
	for instance := 0; ; instance++ {
		exit, code := w.exit(failing, now, instance)
		if exit >= w.For {
			w.up += w.For - now
			break
		}
		w.up += exit - now
		w.fail(failing, exit)
		if w.gates.OnExit(&w.spec, code) != restartpod.ActionRestart {
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
		kind := undelayed
		if now > exit {
			kind = waited
		}
		w.started(now, kind)
	}
}

// begin prepares for a container, and reports whether it fails from the start.
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

// quota returns how many of the first n containers a share picks. A share of 0.1 picks exactly 11
// of 110, which random draws would not.
func quota(n int, share float64) int { return int(math.Round(float64(n) * share)) }

// picked reports whether a share picks the container with the number n.
func picked(n int, share float64) bool { return quota(n+1, share) > quota(n, share) }

// mix is the finalizer of splitmix64. It makes the seeds of adjacent containers independent.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// exit returns the time at which an instance that starts at the given time exits, or never, and
// its exit code.
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

// outage returns the time at which an instance that starts at the given time exits because of an
// outage, or never.
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

// fail notes which returns the container waits for after an exit. It does not wait for a return
// during which another of its dependencies is still away.
func (w *walker) fail(failing bool, exit time.Duration) {
	for i, back := range w.returns {
		if i == len(w.Outages) {
			w.failed[i] = w.failed[i] || failing && exit < back
		} else if w.hit[i] && exit >= w.Outages[i].From && exit < back && !w.away(back) {
			w.failed[i] = true
		}
	}
}

// away reports whether a dependency of the container is down.
func (w *walker) away(now time.Duration) bool {
	for i, out := range w.Outages {
		if w.hit[i] && out.From <= now && now < out.End() {
			return true
		}
	}
	return false
}

// restart returns the time of the restart. It asks the back-off as a kubelet does: after the exit,
// and when the wait is over.
func (w *walker) restart(exit time.Duration) time.Duration {
	event := origin.Add(exit)
	d := w.backOff.Decide(key, event, event)
	if d.Allowed {
		return exit
	}
	at := d.RetryAt.Sub(origin)
	if at < w.For {
		w.backOff.Decide(key, event, d.RetryAt)
	}
	return at
}

// recover records how long after a return the container starts.
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
