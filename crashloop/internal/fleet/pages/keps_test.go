// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

// The KEPs: KEP-4603 as of 2024, as of today, and KEP-5593.
const (
	old, current, maximum = "4603 (2024)", "4603", "5593"
	both                  = old + ", " + current
	all                   = both + ", " + maximum
	perNode               = old + ", " + maximum
)

// figure is a number in the text of a KEP, and the result of the code.
type figure struct {
	keps, section, quantity string
	theirs, ours            string
	// why is the reason for a difference. Without one, both are the same.
	why string
}

// The models of the KEPs, which they do not always name.
const (
	instant = "exits at once"
	slow    = "exits after 10 s"
)

func figuresOf(t *testing.T) []figure {
	t.Helper()
	measured := readLoad(t, results+"/load.json")
	few, full := measured.of(t, "tenth/110"), measured.of(t, "all-fail/110")
	a, b, c := restarts(documented(today), 0), restarts(documented(reduced), 0), restarts(documented(least), 0)
	excess := func(x []time.Duration, from, to time.Duration) int { return within(x, from, to) - within(a, from, to) }
	later := func(x []time.Duration) int { return excess(x, 60*m, 65*m) } // long after the last delay that grows
	ten, one := steps(curve(10*s, 10*s), 0, 10*m), steps(curve(1*s, 1*s), 0, 10*m)
	rise := steps(documented(reduced), 0, 10*m)
	n := func(i int) string { return fmt.Sprint(i) }
	list := []figure{
		{all, "Summary", "delays", "10s, 20s, 40s … 5m", delays(documented(today).Delays(), 3) + " … " + fleet.Short(today.Max), ""},
		{all, "Summary", "a longer run resets the back-off", "10m", fleet.Short(threshold(today)), ""},
		{both, "Summary", "proposed default", "1s … 1m", fleet.Short(reduced.Initial) + " … " + fleet.Short(reduced.Max), ""},
		{perNode, "Proposal", "a node's maximum may be", "1s … 5m", allowed(), ""},

		{both, "Risks", "status updates per restart", "5", fmt.Sprintf("%.1f", few.Requests["PATCH pods"]),
			"the code has five; the kubelet merges most of them before it sends them (load.md, tenth/110)"},
		{both, "Risks", "API requests for pods in a second, 110 pods, no back-off", "~5, then ~2", fmt.Sprintf("%.0f", (full.Requests["PATCH pods"]+full.Requests["GET pods"])*full.PerSecond),
			"the KEP measured with kubeAPIQPS 5, and the default is 50 since v1.27; ours is with a maximum of 1 s (load.md, all-fail/110)"},
		{both, "Risks", "CPU of runtime and API server, factor", "10, 2", "-", "the KEP does not name the reference; load.md has both in cores"},
		{both, "Risks", "excess restarts in the first 5 min, " + instant, "5", n(excess(b, 0, 5*m)), ""},
		{both, "Risks", "of these in the first 30 s", "3", n(excess(b, 0, 30*s)), ""},
		{both, "Risks", "of these from 150 to 300 s", "2", n(excess(b, 150*s, 300*s)), "today's restart at exactly 150 s is in the window; without it, there are 2"},
		{both, "Risks", "excess every 5 min after", "5", n(later(b)), "5 less 1 of today's"},
		{all, "Risks", "requests per 10 s, 110 pods, each every 10 s", "~550", fmt.Sprintf("~%.0f", ten[30]), ""},
		{all, "Risks", "requests per 10 s, 110 pods, each every second", "~5500", fmt.Sprintf("~%.0f", one[30]), ""},
		{all, "Risks", "ratio of the two", "10x", fmt.Sprintf("%.0fx", one[30]/ten[30]), ""},
		{both, "Risks", "the highest rate with the proposed default", "~5500", fmt.Sprintf("~%.0f", max(rise[0], rise[1])), "no pod restarts every second: it restarts three times in the first 10 s, at 1, 3 and 7 s"},
		{both, "Risks", "excess requests of a pod in 5 min", "25", n(5 * later(b)), "4 excess restarts, see above"},
		{both, "Risks", "of 110 pods", "2750", n(110 * 5 * later(b)), "4 excess restarts, see above"},
		{perNode, "Risks", "excess restarts in the first 5 min, maximum 1 s", "305", n(excess(c, 0, 5*m)), "299 restarts a second apart fit into 300 s; less 4 of today's"},
		{perNode, "Risks", "excess every 5 min after", "310", n(later(c)), "300 in 300 s, less 1 of today's"},
		{perNode, "Risks", "excess requests of a pod in 5 min", "~1550", "~" + n(5*later(c)), "299 excess restarts, see above"},
		{perNode, "Risks", "of 110 pods", "170500", n(110 * 5 * later(c)), "299 excess restarts, see above"},
		{perNode, "Risks", "the same in 10 s", "~568", fmt.Sprintf("~%.0f", sum(one[30:60])/30-sum(steps(documented(today), 0, 90*m)[480:510])/30), "170500 in 300 s are 568 in a second, and 5683 in 10 s"},

		{both, "Design Details", "restarts in 30 min, exits after 9:59.59", "2", n(within(restarts(today, 9*m+59*s+590*ms), 0, 30*m)), ""},
		{both, "Design Details", "restarts in 30 min, " + slow + ", the first restart at once", "about 10", "about " + n(within(restarts(today, 10*s), 0, 30*m)), ""},
		{both, "Design Details", "of these in 5 min, the first restart after 10 s", "4", n(within(restarts(documented(today), 10*s), 0, 5*m)), ""},
		{both, "Front loaded decay", "restarts 1, 2 and 3 of today, " + instant, "10s, 30s, 1m10s", delays(a, 3), ""},
		{both, "Front loaded decay", "in these windows with initial 1s", "3, 1, 2", windows(restarts(documented(curve(1*s, 300*s)), 0), nil, a[:3]), ""},
		{both, "Front loaded decay, Alternatives", "excess in a lifetime, initial 1s … 25ms", "3-7", lifetime(a, a[2]),
			"until the third restart of today; the KEP's 7 is the value of 25ms in the first window alone. " + lifetime(a, 2*time.Hour) + " at the end"},
		{both, "Front loaded decay", "excess in windows 1 to 5, 1s … 30s", "2, 1, 0, 3, 4", windows(restarts(documented(curve(1*s, 30*s)), 0), a, a[:5]), "restarts are at 1, 3, 7, 15, 31, 61, 91 s and so on: the second window has one, and today's curve has one there too"},
		{both, "Front loaded decay", "their sum", "10", n(until(restarts(documented(curve(1*s, 30*s)), 0), 0, a[4]) - 5), "10 without today's restart at the end of the fifth window"},
		{perNode + ", " + current, "Recovery threshold", "run that resets the back-off, twice the maximum of 5m, 1m, 1s", "10m, 2m, 2s", proportional(300*s, 60*s, 1*s), ""},
		{all, "Recovery threshold", "the flat threshold in seconds", "300", n(int(threshold(today) / s)), "the KEPs say 10 minutes everywhere else"},
		{all, "Recovery threshold", "granularity of the kubelet's loops", "1 to 10 s", "-", "true for the stock kubelet; the patch requeue wakes the pod worker when the back-off ends (timing.md has the lateness)"},
		{all, "Relationship with 123602", "delays of restarts 1 to 5 as observed", "0s, 10s, 20s, 40s, 80s", observed(today, 5), ""},
		{all, "Relationship with 123602", "waits of restarts 1 to 3 in the transcript", "2s, 16s, 26s", observed(today, 3), "the stock kubelet was late for each restart, including the first"},

		{both, "Alternatives", "catch-up delay at the 6th retry in seconds, 10 min, initial 1s", "569", n(catchUp(a)), ""},
		{maximum, "Scalability", "requests, factor, 110 pods, maximum 0s", "up to 30", "-", "not a valid maximum, and kubeAPIQPS and eventRecordQPS limit the requests: 104 requests/s at 1 s (load.md)"},
		{all, "Scalability", "CPU of the kubelet, factor, 110 pods, maximum 0s", "2", fmt.Sprintf("%.1f", full.Kubelet.Cores/few.Kubelet.Cores), "not a valid maximum; ours compares 110 failing pods with 11, at 1 s (load.md)"},
	}
	return append(list, conflicts()...)
}

// conflicts are the tables of "Conflict resolution".
func conflicts() (list []figure) {
	const stays = "the KEP's column shows the maximum. The maximum can only lower the initial value, as the text above the table says"
	for _, row := range []struct {
		keps    string
		reduced bool
		maximum time.Duration
		theirs  string
	}{
		{all, false, 0, "10s"},
		{both, true, 0, "1s"},
		{perNode, false, 2 * s, "2s"},
		{both, true, 2 * s, "2s"},
		{maximum, false, 10 * s, "10s"},
		{both, true, 10 * s, "10s"},
		{both, true, 300 * s, "5m"},
		{perNode, false, 11 * s, "11s"},
		{perNode, false, 300 * s, "5m"},
		{perNode, false, 301 * s, "kubelet crashes"},
		{old, true, 301 * s, "kubelet crashes"},
	} {
		f := figure{keps: row.keps, section: "Conflict resolution", quantity: "effective initial value", theirs: row.theirs}
		if row.reduced {
			f.quantity += ", reduced decay"
		}
		if row.maximum > 0 {
			f.quantity += ", maximum " + fleet.Short(row.maximum)
		}
		settings := config.Settings{KubeletCrashLoopBackOffMax: true, ReduceDefaultCrashLoopBackOffDecay: row.reduced, MaxContainerRestartPeriod: &row.maximum}
		c := node(row.maximum, row.reduced)
		switch f.ours = fleet.Short(c.Initial); {
		case row.maximum > 0 && len(validation.ValidateCrashLoopBackOff(settings, field.NewPath("crashLoopBackOff"))) > 0:
			f.ours = "kubelet crashes"
		case f.ours != f.theirs:
			f.why = stays
		}
		list = append(list, f)
	}
	return list
}

func delays(list []time.Duration, n int) string {
	var texts []string
	for _, d := range list[:n] {
		texts = append(texts, fleet.Short(d))
	}
	return strings.Join(texts, ", ")
}

// observed returns the waits of the first restarts, in seconds.
func observed(c fleet.Curve, n int) string {
	var texts []string
	last := time.Duration(0)
	for _, at := range restarts(c, 0)[:n] {
		texts = append(texts, fmt.Sprintf("%.0fs", (at-last).Seconds()))
		last = at
	}
	return strings.Join(texts, ", ")
}

// threshold returns the longest run, in whole seconds, that does not reset the back-off.
func threshold(c fleet.Curve) time.Duration {
	for run := s; ; run += s {
		times := restarts(c, run)
		if run > time.Hour || times[4]-times[3] == run { // the restart had no delay
			return run - s
		}
	}
}

// proportional returns the run after which upstream's proportional rule resets, for each maximum.
func proportional(list ...time.Duration) string {
	var texts []string
	for _, maximum := range list {
		run, begin := time.Duration(0), time.Now()
		for !backoff.ProportionalReset(begin.Add(run+1), begin, maximum) {
			run += s
		}
		texts = append(texts, fleet.Short(run))
	}
	return strings.Join(texts, ", ")
}

// allowed returns the lowest and the highest valid maximum in whole seconds.
func allowed() string {
	var valid []time.Duration
	for d := time.Duration(0); d <= 20*m; d += s {
		if len(validation.ValidateCrashLoopBackOff(config.Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: &d}, nil)) == 0 {
			valid = append(valid, d)
		}
	}
	return fleet.Short(valid[0]) + " … " + fleet.Short(valid[len(valid)-1])
}

// windows counts restarts minus those of a base, in windows that end at the given times.
func windows(times, base, ends []time.Duration) string {
	var texts []string
	begin := time.Duration(0)
	for _, end := range ends {
		texts = append(texts, fmt.Sprint(until(times, begin, end)-until(base, begin, end)))
		begin = end
	}
	return strings.Join(texts, ", ")
}

// lifetime returns how many more restarts than the base each initial value has until a time.
func lifetime(base []time.Duration, end time.Duration) string {
	var texts []string
	for _, initial := range []time.Duration{1 * s, 250 * ms, 25 * ms} {
		texts = append(texts, fmt.Sprint(until(restarts(documented(curve(initial, 300*s)), 0), 0, end)-until(base, 0, end)))
	}
	return strings.Join(texts, ", ")
}

// catchUp returns the delay, in seconds, with which an initial delay of 1 s has as many restarts
// in ten minutes as the base.
func catchUp(base []time.Duration) int {
	n := until(base, 0, 10*m)
	return int((10*m - restarts(documented(curve(1*s, 300*s)), 0)[n-1]).Seconds())
}

// Each number in the KEPs is the result of the code, or the table gives a reason for the difference.
func TestKEPs(t *testing.T) {
	var b bytes.Buffer
	list := figuresOf(t)
	same := 0
	for _, f := range list {
		if f.why == "" {
			same++
			assert.Equal(t, f.theirs, f.ours, "%s, %s: %s", f.keps, f.section, f.quantity)
		} else {
			assert.NotEqual(t, f.theirs, f.ours, "%s, %s: %s needs no reason", f.keps, f.section, f.quantity)
		}
	}
	fmt.Fprintf(&b, `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: make docs -->

# The KEPs' figures, computed

KEP-4603 (Tune CrashLoopBackOff, as of 2024 and as of today) and KEP-5593 (Configure the max CrashLoopBackOff delay) estimate the cost of
their curves with numbers and graphs. This page computes them with the code that restarts containers on a node, in virtual time (`+"`crashloop plan fleet`"+`).
%d of %d numbers are the same. For the others the table gives the reason. Windows of five minutes include their beginning and not their end. Windows between
today's restarts, as in "Front loaded decay", include their end and not their beginning. Unless a row says otherwise, a container exits at once and
its first restart waits for the initial delay, as documented. The kubelet makes the first restart at once.

| KEP: section | quantity | KEP | ours | why they differ |
|---|---|---:|---:|---|
`, same, len(list))
	for _, f := range list {
		ours := f.ours
		if f.why != "" && ours != "-" {
			ours = "**" + ours + "**"
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %s |\n", f.keps, f.section, f.quantity, f.theirs, ours, f.why)
	}
	b.WriteString("\n## Graphs\n\nThe text of the KEPs does not include the pictures. These graphs use the curves that the text names, and the model in their title.\n")
	for _, g := range graphs() {
		fmt.Fprintf(&b, "\n%s: %s\n\n", g.keps, g.theirs)
		if g.chart == nil {
			fmt.Fprintf(&b, "%s\n", g.what)
			continue
		}
		fmt.Fprintf(&b, "![%s](keps/%s.svg)\n", g.chart.Title, g.name)
		golden(t, "keps/"+g.name+".svg", chart.SVG(*g.chart))
	}
	golden(t, "keps.md", b.Bytes())
}
