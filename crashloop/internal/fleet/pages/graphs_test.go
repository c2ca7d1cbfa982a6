// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
)

// graph is a picture in a KEP, and the chart for it.
type graph struct {
	keps, theirs, name string
	// what is the text if there is no chart.
	what  string
	chart *chart.Chart
}

// line returns the number of restarts of a container over time.
func line(style int, name string, c fleet.Curve, run, length time.Duration) chart.Series {
	l := chart.Series{Name: name, Steps: true, Style: style, Points: []chart.Point{{}}}
	add := func(at time.Duration, restarts int) {
		l.Points = append(l.Points, chart.Point{X: at.Seconds(), Y: float64(restarts)})
	}
	done := 0
	for _, at := range restarts(documented(c), run) {
		if at > length {
			break
		}
		done++
		add(at, done)
	}
	add(length, done)
	return l
}

// over returns a chart of restarts with several curves. Only the curve of today has the style of the stock kubelet.
func over(title string, run, length time.Duration, lines ...named) *chart.Chart {
	c := &chart.Chart{Title: title, X: chart.Axis{Label: "time", Elapsed: true}, Y: chart.Axis{Label: "restarts"}}
	others := chart.Ours
	for _, n := range lines {
		style := chart.Stock
		if n.curve != today {
			style, others = others, others+1
		}
		c.Series = append(c.Series, line(style, n.name, n.curve, run, length))
	}
	return c
}

type named struct {
	name  string
	curve fleet.Curve
}

func graphs() []graph {
	now := named{"today, 10s to 5m", today}
	proposed := named{"proposed, 1s to 1m", reduced}
	node := named{"per node, 1s", least}
	with := func(initial, maximum time.Duration) named {
		return named{fleet.Short(initial) + " to " + fleet.Short(maximum), curve(initial, maximum)}
	}
	return []graph{
		{both, "`restarts-vs-elapsed-all.png`", "all", "", over("Exits at once: all proposals", 0, 5*m, now, proposed, node)},
		{both, "`restarts-vs-elapsed-new-default.png`", "new-default", "", over("Exits at once: the proposed default", 0, 10*m, now, proposed)},
		{perNode, "today vs the proposed minimum for per node configuration", "per-node", "", over("Exits at once: the lowest maximum of a node", 0, 2*m, now, node)},
		{all, "`crashloopbackoff-succeedingcontainer.png`", "today", "", over("Exits after 10 s: today", 10*s, 30*m, now)},
		{both, "`differentinitialvalues.png`", "initial", "", over("Exits at once: initial values", 0, 20*m, now, with(1*s, 300*s), with(250*ms, 300*s), with(25*ms, 300*s))},
		{both, "`initialvaluesandnumberofrestarts.png`", "initial-windows", "", over("Exits at once: initial values, until the third restart of today", 0, 70*s, now, with(1*s, 300*s), with(250*ms, 300*s), with(25*ms, 300*s))},
		{both, "`initialvaluesandmaxonnumberofrestarts.png`", "initial-and-maximum", "",
			over("Exits at once: initial values and maxima", 0, 310*s, now, with(10*s, 60*s), with(10*s, 30*s), with(1*s, 60*s), with(1*s, 30*s))},
		{all, "`todayvsrapid.png`", "rapid", "", over("Exits after 10 s: restartPolicy Rapid", 10*s, 10*m, now, named{"Rapid, 250ms to 1m", curve(250*ms, 60*s)})},
		{all, "`flatratesuccessvstoday.png`", "flat", "", over("Exits after 10 s: a flat delay of 5 s", 10*s, 10*m, now, named{"flat, 5s", curve(5*s, 5*s)})},
		{all, "`successvsrapidwhenfailed.png`", "success-and-rapid", "",
			over("Exits after 10 s: flat for success, Rapid for failure", 10*s, 5*m, named{"flat, 5s", curve(5*s, 5*s)}, named{"Rapid, 250ms to 1m", curve(250*ms, 60*s)})},
		{both, "`controlfornumberofrestarts.png`", "", "Not drawn: no back-off of the kubelet or of this project has a step in its curve. The delay of 569 s is in the table.", nil},
	}
}
