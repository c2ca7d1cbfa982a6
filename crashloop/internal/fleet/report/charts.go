// SPDX-License-Identifier: Apache-2.0

package report

import (
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
)

// points is the approximate number of points in a line of a chart. More would not be visible.
const points = 500

// Charts returns the charts of a whole result.
func Charts(r *fleet.Result) []chart.Chart {
	o := &r.Options
	all := float64(o.Nodes) * float64(o.Pods*o.Containers)
	over := func(title, x, y string, least float64) chart.Chart {
		return chart.Chart{Title: title, X: chart.Axis{Label: x, Elapsed: true}, Y: chart.Axis{Label: y, Max: least}}
	}
	restarts := over("Restarts of a container", "time", "restarts, mean of all containers", 1)
	excess := over("Excess restarts over "+o.Curves[0].Name, "time", "restarts, mean of all containers", 1)
	requests := over("API requests of all nodes", "time", "requests per 10 s", 1)
	recovered := over("Containers recovered after the outage", "time since then", "% of the containers", 100)
	var base []chart.Point
	for i := range r.Curves {
		name, s := o.Curves[i].Name, &r.Curves[i]
		total, rate := lines(s, all, o.For)
		restarts.Series = append(restarts.Series, chart.Series{Name: name, Style: i, Points: total})
		requests.Series = append(requests.Series, chart.Series{Name: name, Style: i, Points: rate, Steps: true})
		if i == 0 {
			base = total
		} else {
			excess.Series = append(excess.Series, chart.Series{Name: name, Style: i, Points: difference(total, base)})
		}
		if line := recoveryLine(s); len(line) > 0 {
			recovered.Series = append(recovered.Series, chart.Series{Name: name, Style: i, Points: line, Steps: true})
		}
	}
	extend(recovered.Series)
	charts := []chart.Chart{restarts}
	for _, c := range []chart.Chart{excess, requests, recovered} {
		if len(c.Series) > 0 {
			charts = append(charts, c)
		}
	}
	return charts
}

// lines returns the restarts of a container until each point, and the maximum of the requests in
// 10 s since the previous point.
func lines(s *fleet.CurveResult, all float64, length time.Duration) (total, rate []chart.Point) {
	group := max(len(s.Restarts)/points, 1)
	total = []chart.Point{{}}
	var sum, most uint64
	begin := time.Duration(0)
	for i, n := range s.Restarts {
		sum += n
		most = max(most, s.Requests[i])
		if (i+1)%group != 0 && i < len(s.Restarts)-1 {
			continue
		}
		end := min(time.Duration(i+1)*fleet.Step, length)
		total = append(total, chart.Point{X: end.Seconds(), Y: float64(sum) / all})
		rate = append(rate, chart.Point{X: begin.Seconds(), Y: float64(most) / 1000})
		begin, most = end, 0
	}
	return total, append(rate, chart.Point{X: length.Seconds(), Y: rate[len(rate)-1].Y})
}

func difference(a, b []chart.Point) []chart.Point {
	result := make([]chart.Point, len(a))
	for i := range a {
		result[i] = chart.Point{X: a[i].X, Y: a[i].Y - b[i].Y}
	}
	return result
}

// recoveryLine returns the percentage of the containers that had started again, over all returns.
func recoveryLine(s *fleet.CurveResult) []chart.Point {
	var failed uint64
	var counts []uint64
	for i := range s.Recoveries {
		r := &s.Recoveries[i]
		failed += r.Failed()
		for n, count := range r.Counts {
			for len(counts) <= n {
				counts = append(counts, 0)
			}
			counts[n] += count
		}
	}
	if failed == 0 {
		return nil
	}
	line := []chart.Point{{}}
	var sum uint64
	for n, count := range counts {
		if sum += count; count > 0 {
			line = append(line, chart.Point{X: (time.Duration(n) * s.Resolution).Seconds(), Y: 100 * float64(sum) / float64(failed)})
		}
	}
	return line
}

// extend makes all lines end where the longest one ends.
func extend(lines []chart.Series) {
	var end float64
	for _, line := range lines {
		end = max(end, line.Points[len(line.Points)-1].X)
	}
	for i, line := range lines {
		if last := line.Points[len(line.Points)-1]; last.X < end {
			lines[i].Points = append(line.Points, chart.Point{X: end, Y: last.Y})
		}
	}
}
