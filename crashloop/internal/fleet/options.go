// SPDX-License-Identifier: Apache-2.0

// Package fleet simulates the restarts of all containers of many nodes in virtual time, with any
// number of back-off curves. It has no formula for delays, resets or restarts: packages backoff,
// restart and restartpod decide on each restart of each container. The same Options give the
// same result on any number of processors.
package fleet

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
)

// Curve is a back-off with a name.
type Curve struct {
	Name string
	backoff.Curve
}

// Options are the input of a run.
type Options struct {
	// Curves are simulated side by side, with the same random draws. The others are compared with
	// the first one.
	Curves []Curve
	// Nodes is the number of nodes, Pods the number of pods per node, and Containers the number of
	// containers per pod.
	Nodes, Pods, Containers int
	// Lives has the exits of a container that fails, or whose dependency is down.
	Lives plan.Lives
	// Policy is the restart policy of the pods: Always or OnFailure.
	Policy v1.RestartPolicy
	// Fail is the share of the containers that exit as in Lives from the start. The others run
	// until an outage.
	Fail float64
	// Succeed is the share of the exits that have code 0 instead of the code in Lives.
	Succeed float64
	// Recover is the time after which containers of Fail run like the others when they start.
	// 0 means never.
	Recover time.Duration
	// Outages are the outages of dependencies.
	Outages []Outage
	// Stagger is the time over which the first starts of the containers are spread. With 0 all
	// start at once.
	Stagger time.Duration
	// For is the simulated time.
	For  time.Duration
	Seed uint64
	Costs
}

// Outage is the outage of a dependency. Share is the share of the containers that need it, among
// the containers that do not fail when it begins. These containers exit as Lives says if they run
// during the outage. An exit that would be after the end of the outage does not happen.
type Outage struct {
	From, Length time.Duration
	Share        float64
}

// End returns the time at which the outage ends.
func (o Outage) End() time.Duration { return o.From + o.Length }

// Step is the interval over which restarts and requests are counted. It is 10 s because the KEPs
// give requests per 10 s.
const Step = 10 * time.Second

// The limits of Options. A value above one of them is most likely a mistake.
const (
	// LeastDelay is the shortest delay. With a delay of 0 a container could restart endlessly
	// without the simulated time moving on.
	LeastDelay = time.Millisecond
	// LongestDelay is the largest maximum of a curve.
	LongestDelay   = 30 * 24 * time.Hour
	mostCurves     = 50
	mostNodes      = 1_000_000
	mostPods       = 10_000
	mostContainers = 1_000
	mostOutages    = 100
	// mostAll is the maximum number of containers of all nodes.
	mostAll = 1_000_000_000
	// mostRestarts is the maximum estimated number of restarts of a run. They take about two hours
	// on two processors.
	mostRestarts = 2e10
	// mostSteps is the maximum number of steps of all curves together.
	mostSteps = 10_000_000
	// mostCost is the maximum cost of a restart, in requests and in CPU seconds.
	mostCost = 1e4
)

// Validate returns an error that names the invalid field as the flag of crashloop plan fleet, its
// value, and what would be valid.
func (o *Options) Validate() error {
	names := map[string]bool{}
	if len(o.Curves) == 0 || len(o.Curves) > mostCurves {
		return fmt.Errorf("curves: %d: must be from 1 to %d", len(o.Curves), mostCurves)
	}
	for _, c := range o.Curves {
		switch {
		case c.Name == "":
			return fmt.Errorf("a curve has no name")
		case !utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
			return fmt.Errorf("curve %q: the name has a character that cannot be printed", c.Name)
		case names[c.Name]:
			return fmt.Errorf("curve %q: two curves have this name", c.Name)
		}
		if err := CheckDelays(c.Curve); err != nil {
			return fmt.Errorf("curve %q: %w", c.Name, err)
		}
		names[c.Name] = true
	}
	for _, n := range []struct {
		name        string
		value, most int
	}{{"nodes", o.Nodes, mostNodes}, {"pods", o.Pods, mostPods}, {"containers", o.Containers, mostContainers}} {
		if n.value < 1 || n.value > n.most {
			return fmt.Errorf("%s: %d: must be from 1 to %d", n.name, n.value, n.most)
		}
	}
	if all := o.all(); all > mostAll {
		return fmt.Errorf("nodes, pods, containers: %d x %d x %d are %d containers: must be at most %d", o.Nodes, o.Pods, o.Containers, all, mostAll)
	}
	if len(o.Lives) == 0 {
		return fmt.Errorf("exit: there must be a life")
	}
	if _, err := plan.ParseLives(o.Lives.String()); err != nil {
		return fmt.Errorf("exit: %w", err)
	}
	if o.Policy != v1.RestartPolicyAlways && o.Policy != v1.RestartPolicyOnFailure {
		return fmt.Errorf("restart policy %q: must be %s or %s", o.Policy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure)
	}
	for _, s := range []struct {
		name  string
		value float64
	}{{"fail", o.Fail}, {"succeed", o.Succeed}} {
		if err := checkShare(s.value); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if o.For < Step || o.For > plan.Longest {
		return fmt.Errorf("for: %v: must be from %v to %v", o.For, Step, plan.Longest)
	}
	if n := int(o.For/Step) * len(o.Curves); n > mostSteps {
		return fmt.Errorf("for: %v with %d curves are %d steps of %v: must be at most %d", o.For, len(o.Curves), n, Step, mostSteps)
	}
	if o.Stagger < 0 || o.Stagger > o.For {
		return fmt.Errorf("stagger: %v: must be from 0s to the simulated time, %v", o.Stagger, o.For)
	}
	if o.Recover < 0 || o.Recover > o.For {
		return fmt.Errorf("recover: %v: must be from 0s to the simulated time, %v", o.Recover, o.For)
	}
	if err := o.validateOutages(); err != nil {
		return err
	}
	if err := o.Costs.validate(); err != nil {
		return err
	}
	for _, c := range o.Curves {
		if n := o.estimate(c); n > mostRestarts {
			return fmt.Errorf("curve %q: about %.0g restarts are too many to simulate: use fewer nodes or a shorter time", c.Name, n)
		}
	}
	return nil
}

// CheckDelays returns an error if the delays of a curve are too short or too long.
func CheckDelays(c backoff.Curve) error {
	switch {
	case c.Initial < LeastDelay || c.Initial > c.Max:
		return fmt.Errorf("the initial delay %v must be from %v to the maximum, %v", c.Initial, LeastDelay, c.Max)
	case c.Max > LongestDelay:
		return fmt.Errorf("the maximum %v must be at most %v", c.Max, LongestDelay)
	}
	return nil
}

func (o *Options) validateOutages() error {
	if len(o.Outages) > mostOutages {
		return fmt.Errorf("outages: %d: must be at most %d", len(o.Outages), mostOutages)
	}
	for _, out := range o.Outages {
		if out.From < 0 || out.Length <= 0 || out.Length > o.For || out.From > o.For-out.Length {
			return fmt.Errorf("outage: from %v for %v: must be longer than 0s, and end within the simulated time, %v", out.From, out.Length, o.For)
		}
		if err := checkShare(out.Share); err != nil {
			return fmt.Errorf("outage: %w", err)
		}
	}
	return nil
}

// ofAll reports whether all containers have recovered when the outage begins.
func (o *Options) ofAll(out Outage) bool { return o.Recover > 0 && out.From >= o.Recover }

// checkShare returns an error unless the share is from 0 to 1. NaN is an error.
func checkShare(s float64) error {
	if s >= 0 && s <= 1 {
		return nil
	}
	return fmt.Errorf("the share %v must be from 0 to 1, such as 0.02 or 2%%", s)
}

// all returns the number of containers of all nodes.
func (o *Options) all() int { return o.Nodes * o.Pods * o.Containers }

// estimate returns the approximate number of restarts with a curve. Validate refuses runs that
// would take too long.
func (o *Options) estimate(c Curve) float64 {
	last := o.Lives.Of(len(o.Lives))
	if last.Runs {
		return 0
	}
	each := last.Mean()
	if each <= backoff.ContainerResetPeriod {
		each += c.Max
	}
	restarts := func(d time.Duration) float64 { return float64(d) / math.Max(float64(each), 1) }
	length := o.For
	if o.Recover > 0 {
		length = o.Recover
	}
	sum := o.Fail * restarts(length)
	for _, out := range o.Outages {
		of := 1 - o.Fail
		if o.ofAll(out) {
			of = 1
		}
		sum += of * out.Share * restarts(out.Length)
	}
	return sum * float64(o.all())
}

// String describes the simulation in one line, without the curves and the costs.
func (o *Options) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s", count(o.Nodes, "node"), count(o.Pods, "pod"))
	if o.Containers > 1 {
		fmt.Fprintf(&b, " of %d containers", o.Containers)
	}
	fmt.Fprintf(&b, ", %s", Short(o.For))
	if o.Fail > 0 {
		fmt.Fprintf(&b, "; %s fail: %s", Percent(o.Fail), o.Lives)
		if o.Recover > 0 {
			fmt.Fprintf(&b, ", until %s", Short(o.Recover))
		}
	}
	for _, out := range o.Outages {
		fmt.Fprintf(&b, "; from %s, a dependency of %s", Short(out.From), Percent(out.Share))
		if o.Fail > 0 && !o.ofAll(out) {
			b.WriteString(" of the others")
		}
		fmt.Fprintf(&b, " is down for %s: %s", Short(out.Length), o.Lives)
	}
	if o.Succeed > 0 {
		fmt.Fprintf(&b, "; %s of the exits succeed", Percent(o.Succeed))
	}
	fmt.Fprintf(&b, "; restart policy %s", o.Policy)
	if o.Stagger > 0 {
		fmt.Fprintf(&b, "; started within %s", Short(o.Stagger))
	}
	fmt.Fprintf(&b, "; seed %d", o.Seed)
	return b.String()
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// Percent formats a share as a percentage.
func Percent(share float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", 100*share), "0"), ".") + "%"
}

// Short formats a duration without trailing zero units: 5m instead of 5m0s.
func Short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
