// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

const s = time.Second

var (
	standard = Curve{"default", backoff.Curve{Initial: 10 * s, Max: 300 * s}}
	reduced  = Curve{"reduced", backoff.Curve{Initial: 1 * s, Max: 60 * s}}
	fast     = Curve{"4s", backoff.Curve{Initial: 4 * s, Max: 4 * s}}
)

// lives parses the exits of a container.
func lives(t testing.TB, text string) plan.Lives {
	t.Helper()
	l, err := plan.ParseLives(text)
	require.NoError(t, err)
	return l
}

// small returns options for a node with one container that fails after two seconds.
func small(t testing.TB) Options {
	return Options{
		Curves: []Curve{standard}, Nodes: 1, Pods: 1, Containers: 1, Lives: lives(t, "1@2s"), Policy: v1.RestartPolicyAlways,
		Fail: 1, For: time.Hour, Seed: 1, Costs: Costs{RequestsPerRestart: 5},
	}
}

// simulated runs a whole fleet.
func simulated(t testing.TB, o Options) *Result {
	t.Helper()
	r, err := Run(o, nil)
	require.NoError(t, err)
	return r
}

// A container of a fleet restarts at the same times as in the plan of its pod, for any curve and
// script.
func TestAsPlan(t *testing.T) {
	length := 6 * time.Hour
	if testing.Short() {
		length = 2 * time.Hour
	}
	for _, curve := range []backoff.Curve{
		standard.Curve, reduced.Curve, fast.Curve, {Initial: 10 * s, Max: 300 * s, DelayFirst: true}, {Initial: 25 * time.Millisecond, Max: 30 * s},
	} {
		for _, tc := range []struct {
			script  string
			policy  v1.RestartPolicy
			recover time.Duration
		}{
			{script: "1@2s"}, {script: "1@0s"}, {script: "0@11m"}, {script: "1@10m"}, {script: "1@1s,1@2s,1@15m,1@3s"}, {script: "1@5s,1@5s,runs"},
			{script: "1@exp(30s)"}, {script: "1@exp(8m)"}, {script: "1@uniform(1s,12m)"},
			{script: "1@3s", recover: 12 * time.Minute}, {script: "1@3s,1@3s,0@4s", policy: v1.RestartPolicyOnFailure}, {script: "0@3s"},
		} {
			o := small(t)
			o.Curves[0].Curve, o.Lives, o.Recover, o.For = curve, lives(t, tc.script), tc.recover, length
			if tc.policy != "" {
				o.Policy = tc.policy
			}
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: o.Policy, Containers: []v1.Container{{Name: "main"}}}}
			pod.Name = "web"
			podspec.Default(pod)
			po := plan.Options{
				Pod: pod, Gates: restartpod.Gates{}, Curve: curve, Lives: map[string]plan.Lives{"main": o.Lives},
				Recovers: map[string]time.Duration{}, Begin: origin, For: o.For, Seed: o.Seed,
			}
			if o.Recover > 0 {
				po.Recovers["main"] = o.Recover
			}
			p, err := plan.Make(po)
			require.NoError(t, err)
			var want []time.Duration
			for _, e := range p.Entries {
				if at := e.Time.Sub(p.Begin); e.Kind == plan.Start && e.Restarts > 0 && at < o.For {
					want = append(want, at)
				}
			}
			var got []time.Duration
			w := newWalker(&o, curve, func(at time.Duration, kind start) {
				if kind != first {
					got = append(got, at)
				}
			})
			// A plan uses one random source for all containers, so random lives would differ.
			w.random = rand.New(rand.NewPCG(o.Seed, 0))
			w.walk(0)
			assert.Equal(t, want, got, "%v, %s", curve, tc.script)
			assert.InDelta(t, p.Containers[0].RanSeconds, w.up.Seconds(), 1e-6, "%v, %s", curve, tc.script)
			assert.InDelta(t, p.Containers[0].DownSeconds, w.down.Seconds(), 1e-6, "%v, %s", curve, tc.script)
			assert.EqualValues(t, len(want), w.restarts)
			assert.Equal(t, tc.policy == v1.RestartPolicyOnFailure, w.completed)
		}
	}
}

// The sums are those of restarts counted by hand: at 2, 14, 36, 78, 160, 322, 624, 926 … s.
func TestSums(t *testing.T) {
	o := small(t)
	o.Nodes, o.Pods, o.Containers, o.For = 3, 5, 2, 400*s
	o.Costs = Costs{RequestsPerRestart: 5, RequestLimit: 4}
	r := simulated(t, o)
	c := r.Curves[0]
	assert.EqualValues(t, 6*30, c.Total())
	assert.Len(t, c.Restarts, 40)
	for _, step := range []int{0, 1, 3, 7, 16, 32} {
		assert.EqualValues(t, 30, c.Restarts[step], "step %d", step)
		// The limit of a node is 40 requests in a step, so it does not send 50.
		assert.EqualValues(t, 3*40_000, c.Requests[step], "step %d", step)
	}
	assert.EqualValues(t, 40_000, c.PeakRequests)
	// The container ran seven times for two seconds, the last time from 322 s on.
	assert.EqualValues(t, 30*14_000, c.UpMillis)
	assert.EqualValues(t, 30*(400_000-14_000), c.DownMillis)
}

// client-go's filter has a burst for each type of events of a pod, which all its containers share. The restarts are at 2, 14, 26 … s,
// and the first starts have taken three normal events each.
func TestEvents(t *testing.T) {
	for _, tc := range []struct {
		containers int
		fail       float64
		want       []uint64 // in each Step
	}{
		// From 90 s on, there are only warnings.
		{1, 1, []uint64{3, 4, 4, 4, 0, 4, 4, 4, 2, 1, 0, 1, 1, 1, 1, 1, 0}},
		// Another container runs.
		{2, 0.5, []uint64{3, 4, 4, 4, 0, 4, 4, 2, 1, 1, 0, 1, 1, 1, 1, 1, 0}},
		{2, 1, []uint64{6, 8, 8, 3, 0, 2, 2, 2, 2, 2, 0, 2, 2, 2, 2, 1, 0}},
		{30, 1, []uint64{0, 25, 0, 0, 0, 0}},
	} {
		o := small(t)
		ten := Curve{Name: "10s", Curve: backoff.Curve{Initial: 10 * s, Max: 10 * s}}
		o.Containers, o.Fail, o.Costs = tc.containers, tc.fail, Costs{EventsPerRestart: 4}
		steps := make([]activity, 360)
		newPods(&o, ten, 360).walkPod(0, steps, nil)
		var got []uint64
		for _, a := range steps[:len(tc.want)] {
			got = append(got, a.wanted)
		}
		assert.Equal(t, tc.want, got, "%d containers, %v of them fail", tc.containers, tc.fail)
	}
}

func TestRequests(t *testing.T) {
	o := Options{Pods: 5, Costs: Costs{RequestsPerRestart: 1.5, RequestLimit: 2, EventLimit: 50}}
	var got []uint64
	for _, n := range o.requests([]activity{
		{10, 0, 0},
		// A status of each pod waits for the next step.
		{100, 0, 0}, {0, 0, 0},
		// 1000 events wait, and the others are dropped. One that comes later takes the place of a dropped one, but those that no filter lets through do not.
		{0, 3000, 2600}, {0, 0, 0}, {0, 400, 0}, {0, 400, 0}, {0, 900, 0}, {0, 0, 0}, {0, 0, 0},
	}) {
		got = append(got, n)
	}
	assert.Equal(t, []uint64{15_000, 20_000, 5_000, 500_000, 500_000, 500_000, 500_000, 500_000, 100_000, 0}, got)
}

// A share picks an exact number of all containers, not an approximate number or a number per node.
func TestShares(t *testing.T) {
	for _, tc := range []struct {
		nodes, pods int
		share       float64
		want        int
	}{{1, 110, 0.1, 11}, {7, 10, 0.29, 20}, {200, 1, 0.05, 10}, {3, 3, 0, 0}, {3, 3, 1, 9}} {
		o := small(t)
		o.Nodes, o.Pods, o.Fail, o.For = tc.nodes, tc.pods, tc.share, 10*s
		assert.EqualValues(t, tc.want, simulated(t, o).Curves[0].Total(), "%+v", tc)
	}
	o := small(t)
	o.Pods, o.Policy, o.Succeed = 1000, v1.RestartPolicyOnFailure, 0.25
	// In an hour a container has 16 exits, so all but one in a hundred succeed once.
	assert.InDelta(t, 990, simulated(t, o).Curves[0].Completed, 9)
	o.Policy = v1.RestartPolicyAlways
	assert.Zero(t, simulated(t, o).Curves[0].Completed)
}

// A container that fails in an outage waits after its end as the curve says. Containers that do not
// need the dependency, or that do not exit during the outage, do not wait.
func TestOutage(t *testing.T) {
	o := small(t)
	o.Curves = []Curve{standard, fast}
	o.Pods, o.Fail = 100, 0
	o.Outages = []Outage{{From: 20 * time.Minute, Length: 10 * time.Minute, Share: 0.3}}
	r := simulated(t, o)
	// Each container exits 2 s after the start of the outage. After a run of more than ten minutes
	// the first restart is immediate. The restarts are at 2, 14, 36, 78, 160, 322 and 624 s, and
	// the last one is after the end at 600 s.
	c := r.Curves[0]
	assert.EqualValues(t, 30*7, c.Total())
	back := &c.Recoveries[0]
	assert.Equal(t, 30*time.Minute, back.Back)
	assert.EqualValues(t, 30, back.Failed())
	assert.Equal(t, 24*s, back.Longest)
	for _, q := range []float64{0.01, 0.5, 0.99, 1} {
		d, ok := c.Quantile(back, q)
		assert.True(t, ok)
		assert.Equal(t, 24*s, d)
	}
	assert.LessOrEqual(t, r.Curves[1].Recoveries[0].Longest, 4*s)

	// The outage ends before they fail.
	o.Outages[0].Length = 2 * s
	r = simulated(t, o)
	assert.Zero(t, r.Curves[0].Total())
	assert.Zero(t, r.Curves[0].Recoveries[0].Failed())
	_, ok := r.Curves[0].Quantile(&r.Curves[0].Recoveries[0], 0.5)
	assert.False(t, ok)

	// The simulation ends before they recover.
	o.Outages[0].Length, o.For = 10*time.Minute, 30*time.Minute+10*s
	c = simulated(t, o).Curves[0]
	assert.EqualValues(t, 30, c.Recoveries[0].Never)
}

// A container recovers when all its dependencies are back.
func TestOverlappingOutages(t *testing.T) {
	o := small(t)
	o.Fail = 0
	o.Outages = []Outage{{From: 10 * time.Minute, Length: 5 * time.Minute, Share: 1}, {From: 12 * time.Minute, Length: 5 * time.Minute, Share: 1}}
	c := simulated(t, o).Curves[0]
	assert.Zero(t, c.Recoveries[0].Failed())
	assert.EqualValues(t, o.Nodes*o.Pods*o.Containers, c.Recoveries[1].Failed())
	// Exits are 2 s after starts, and the waits are 0, 10, 20, 40, 80, 160 and 300 s.
	assert.Equal(t, 10*time.Minute+624*s, c.Recoveries[1].Back+c.Recoveries[1].Longest)
}

// Containers that have recovered are like those that never failed: a later outage hits its share of
// all of them.
func TestOutageAfterRecover(t *testing.T) {
	o := small(t)
	o.Pods, o.Fail, o.Recover, o.For = 100, 0.4, 10*time.Minute, 2*time.Hour
	o.Outages = []Outage{
		{From: 5 * time.Minute, Length: time.Minute, Share: 0.5}, // of the 60 others
		{From: time.Hour, Length: 10 * time.Minute, Share: 0.5},  // of all
		{From: 10 * time.Minute, Length: 2 * time.Minute, Share: 1},
	}
	assert.Contains(t, o.String(), "from 5m, a dependency of 50% of the others is down for 1m: 1@2s; from 1h, a dependency of 50% is down for 10m: 1@2s; from 10m, a dependency of 100% is down for 2m: 1@2s;")
	c := simulated(t, o).Curves[0]
	var failed []uint64
	for i := range c.Recoveries {
		failed = append(failed, c.Recoveries[i].Failed())
	}
	// The last 40 wait from 322 s to 622 s, and start in the third outage, so they fail because of
	// that too.
	assert.Equal(t, []uint64{30, 50, 100, 40}, failed)
	assert.Equal(t, 24*s, c.Recoveries[1].Longest, "as after an outage that others have")
	// After all outages no container fails again.
	o.Outages = nil
	before := simulated(t, o).Curves[0].Total()
	o.Outages = []Outage{{From: time.Hour, Length: 10 * time.Minute, Share: 0.5}}
	assert.EqualValues(t, 50*7, simulated(t, o).Curves[0].Total()-before)
	// A container that has not failed yet runs like the others.
	o.Lives, o.Recover = lives(t, "1@100m"), s
	assert.EqualValues(t, 40, simulated(t, o).Curves[0].Total())
	o.Lives = lives(t, "1@5m")
	o.Outages[0].From = 4 * time.Minute
	// 20 exit at 5 and 10 min, 20 at 5 min, and 30 at 9 min.
	assert.EqualValues(t, 2*20+20+30, simulated(t, o).Curves[0].Total())
	o.For, o.Lives, o.Nodes, o.Pods, o.Fail, o.Recover = plan.Longest, lives(t, "1@0s"), 1_000_000, 1000, 1, s
	o.Curves = []Curve{fast}
	o.Outages[0] = Outage{From: s, Length: plan.Longest / 2, Share: 1}
	assert.ErrorContains(t, o.Validate(), "restarts are too many")
}

// A seed gives the same bytes on any number of processors. Another seed gives another result.
func TestDeterministic(t *testing.T) {
	o := small(t)
	o.Curves = []Curve{standard, reduced, fast}
	o.Nodes, o.Pods, o.Containers, o.Fail, o.Succeed, o.Stagger = 7, 11, 2, 0.4, 0.1, 30*s
	o.Lives = lives(t, "1@exp(5s),1@uniform(1s,12m)")
	o.Outages = []Outage{{From: 10 * time.Minute, Length: 7 * time.Minute, Share: 0.5}, {From: 12 * time.Minute, Length: 20 * time.Minute, Share: 0.3}}
	encode := func(r *Result) string {
		data, err := json.Marshal(r)
		require.NoError(t, err)
		return string(data)
	}
	want := encode(simulated(t, o))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	assert.Equal(t, want, encode(simulated(t, o)))
	runtime.GOMAXPROCS(5)
	assert.Equal(t, want, encode(simulated(t, o)))
	o.Seed++
	assert.NotEqual(t, want, encode(simulated(t, o)))
}

// Invalid options are an error that names the field.
func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"curves: 0":                                         func(o *Options) { o.Curves = nil },
		`curve "default": two curves have`:                  func(o *Options) { o.Curves = []Curve{standard, standard} },
		`curve "a\x1b[31m": the name has a char`:            func(o *Options) { o.Curves[0].Name = "a\x1b[31m" },
		"a curve has no name":                               func(o *Options) { o.Curves[0].Name = "" },
		`curve "default": the initial delay 0s`:             func(o *Options) { o.Curves[0].Initial = 0 },
		`curve "default": the initial delay 1h0m0s must be`: func(o *Options) { o.Curves[0].Initial = time.Hour },
		`the maximum 2562047h47m16.854775807s must be`:      func(o *Options) { o.Curves[0].Max = math.MaxInt64 },
		"nodes: 0: must be from 1 to 1000000":               func(o *Options) { o.Nodes = 0 },
		"nodes: 9223372036854775807":                        func(o *Options) { o.Nodes = math.MaxInt },
		"pods: -1":                                          func(o *Options) { o.Pods = -1 },
		"containers: 1001":                                  func(o *Options) { o.Containers = 1001 },
		"1000000 x 10000 x 1 are 10000000000 containers":    func(o *Options) { o.Nodes, o.Pods = 1_000_000, 10_000 },
		"exit: there must be a life":                        func(o *Options) { o.Lives = nil },
		`restart policy "Never"`:                            func(o *Options) { o.Policy = v1.RestartPolicyNever },
		"fail: the share NaN must be from 0 to 1":           func(o *Options) { o.Fail = math.NaN() },
		"fail: the share -0.1":                              func(o *Options) { o.Fail = -0.1 },
		"succeed: the share 1.5":                            func(o *Options) { o.Succeed = 1.5 },
		"for: 0s":                                           func(o *Options) { o.For = 0 },
		"for: 876000h0m0s":                                  func(o *Options) { o.For = 100 * plan.Longest },
		"stagger: -1s":                                      func(o *Options) { o.Stagger = -s },
		"recover: 2h0m0s":                                   func(o *Options) { o.Recover = 2 * time.Hour },
		"outage: from 50m0s for 20m0s":                      func(o *Options) { o.Outages = []Outage{{50 * time.Minute, 20 * time.Minute, 1}} },
		"outage: from 2562047h47m16.854775807s":             func(o *Options) { o.Outages = []Outage{{math.MaxInt64, s, 1}} },
		"outage: from 1s for 0s":                            func(o *Options) { o.Outages = []Outage{{s, 0, 1}} },
		"outage: the share +Inf":                            func(o *Options) { o.Outages = []Outage{{s, s, math.Inf(1)}} },
		"requests-per-restart: -1":                          func(o *Options) { o.RequestsPerRestart = -1 },
		"cpu-idle: NaN":                                     func(o *Options) { o.CPUIdle = math.NaN() },
		"restarts are too many": func(o *Options) {
			o.Nodes, o.Pods, o.For, o.Curves[0].Curve = 100_000, 1000, plan.Longest, backoff.Curve{Initial: s, Max: s}
		},
		"are 15768000 steps": func(o *Options) {
			o.For, o.Curves = plan.Longest, []Curve{standard, reduced, fast, {"a", fast.Curve}, {"b", fast.Curve}}
		},
	} {
		o := small(t)
		change(&o)
		_, err := Run(o, nil)
		assert.ErrorContains(t, err, want)
	}
}

// A container without restarts costs nothing, and runs all the time.
func TestNothingFails(t *testing.T) {
	o := small(t)
	o.Lives = lives(t, "runs")
	c := simulated(t, o).Curves[0]
	assert.Zero(t, c.Total())
	assert.EqualValues(t, 3_600_000, c.UpMillis)
	assert.Zero(t, c.DownMillis)
}

// A restart does not allocate memory, because a day of a fleet has very many.
func TestAllocations(t *testing.T) {
	o := small(t)
	o.Lives, o.Stagger = lives(t, "1@exp(10s)"), s
	w := newWalker(&o, standard.Curve, func(time.Duration, start) {})
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { w.walk(7) }), 1.0)
}

// A day of a container with the default curve.
func BenchmarkDay(b *testing.B) {
	o := small(b)
	o.Lives, o.For = lives(b, "1@10s"), 24*time.Hour
	var restarts uint64
	w := newWalker(&o, standard.Curve, func(time.Duration, start) { restarts++ })
	for number := range b.N {
		w.walk(number)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(restarts), "ns/restart")
}
