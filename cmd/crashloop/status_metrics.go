// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// These keep memory in bounds, whatever the text: the parser takes 200 bytes for
// a line of four. Its time for a line grows with the square of the labels.
const (
	maxMetricLines = 1 << 20
	maxMetricLine  = 8 << 10
)

// The metrics of a kubelet of this project.
const (
	metricWaiting  = "kubelet_restart_backoff_waiting_containers"
	metricDelay    = "kubelet_restart_backoff_delay_seconds"
	metricLateness = "kubelet_restart_backoff_lateness_seconds"
	metricResets   = "kubelet_restart_backoff_resets_total"
	metricKeys     = "kubelet_restart_backoff_keys"
	metricInPlace  = "kubelet_pod_in_place_restarts_total"
	metricPhase    = "kubelet_pod_in_place_restart_phase_duration_seconds"
	// metricStart is one that every process has.
	metricStart = "process_start_time_seconds"
)

// optionalLabel is why restarts are late. Earlier kubelets do not have it. All causes
// are taken together.
const optionalLabel = "cause"

// statusMetrics says what those metrics are.
var statusMetrics = []struct {
	name   string
	kind   dto.MetricType
	labels []string
}{
	{metricWaiting, dto.MetricType_GAUGE, nil},
	{metricDelay, dto.MetricType_HISTOGRAM, []string{"type"}},
	{metricLateness, dto.MetricType_HISTOGRAM, []string{"type", optionalLabel}},
	{metricResets, dto.MetricType_COUNTER, []string{"type"}},
	{metricKeys, dto.MetricType_GAUGE, []string{"type"}},
	{metricInPlace, dto.MetricType_COUNTER, []string{"action", "outcome"}},
	{metricPhase, dto.MetricType_HISTOGRAM, []string{"action", "phase"}},
}

// statusReport is what status prints. Its JSON is for scripts: fields are added,
// and neither renamed nor removed.
type statusReport struct {
	// Source is where the metrics are from.
	Source string `json:"source"`
	// KubeletStarted is since when all but gauges count. It is missing when the
	// metrics do not say.
	KubeletStarted *time.Time `json:"kubeletStarted,omitempty"`
	// WaitingContainers are those in CrashLoopBackOff. It is missing when the
	// metrics do not say.
	WaitingContainers *uint64 `json:"waitingContainers,omitempty"`
	// Restarts are those of all back-offs.
	Restarts        uint64          `json:"restarts"`
	BackOffs        []backOffStatus `json:"backOffs"`
	InPlaceRestarts []inPlaceStatus `json:"inPlaceRestarts"`
}

// backOffStatus is of one of the kubelet's back-offs.
type backOffStatus struct {
	// Type is container or pod: the back-off of in-place pod restarts.
	Type     string       `json:"type"`
	Restarts uint64       `json:"restarts"`
	Resets   uint64       `json:"resets"`
	Keys     uint64       `json:"keys"`
	Delays   distribution `json:"delays"`
	Lateness distribution `json:"lateness"`

	// lateness is what Lateness is made of.
	lateness *dto.Histogram
}

// inPlaceStatus is of the in-place pod restarts by one action.
type inPlaceStatus struct {
	Action string `json:"action"`
	// Outcomes says how many ended in what way.
	Outcomes map[string]uint64 `json:"outcomes"`
	Phases   []phaseStatus     `json:"phases"`
}

type phaseStatus struct {
	Phase    string       `json:"phase"`
	Duration distribution `json:"duration"`
}

// distribution is a histogram of durations.
type distribution struct {
	Count      uint64  `json:"count"`
	SumSeconds float64 `json:"sumSeconds"`
	// P50, P99 and Max are missing when the count is 0.
	P50 *bound `json:"p50,omitempty"`
	P99 *bound `json:"p99,omitempty"`
	// Max is the upper bound of the last bucket that is not empty.
	Max *bound `json:"max,omitempty"`
	// Buckets are those that are not empty.
	Buckets []bucketStatus `json:"buckets"`
}

// bound is a duration, or that there is no telling how much more it is.
type bound struct {
	Seconds float64 `json:"seconds"`
	// Above says that it is more than that: the histogram's last bound.
	Above bool `json:"above,omitempty"`
}

// bucketStatus is how many are in a bucket and in none below it.
type bucketStatus struct {
	UpTo  bound  `json:"upTo"`
	Count uint64 `json:"count"`
}

// newStatusReport makes a report of metrics in the text format.
func newStatusReport(data []byte) (*statusReport, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("empty: there are no metrics in it")
	}
	n := 0
	for line := range bytes.Lines(data) {
		if n++; n > maxMetricLines {
			return nil, fmt.Errorf("more than %d lines: no kubelet has so many metrics", maxMetricLines)
		}
		if len(line) > maxMetricLine {
			return nil, fmt.Errorf("line %d: it has more than %d bytes: no kubelet has so long a metric", n, maxMetricLine)
		}
	}
	families, err := parseMetrics(data)
	if err != nil {
		return nil, fmt.Errorf("%w: this is not the Prometheus text format that a kubelet has at /metrics", err)
	}
	r := &statusReport{BackOffs: []backOffStatus{}, InPlaceRestarts: []inPlaceStatus{}}
	found := false
	backOffs, inPlace := map[string]*backOffStatus{}, map[string]*inPlaceStatus{}
	for _, metric := range statusMetrics {
		family := families[metric.name]
		if family == nil {
			continue
		}
		found = true
		if family.GetType() != metric.kind {
			return nil, fmt.Errorf("%s is not the %s that it is in a kubelet: its type is %s", metric.name,
				strings.ToLower(metric.kind.String()), strings.ToLower(family.GetType().String()))
		}
		seen := map[string]bool{}
		for _, m := range family.GetMetric() {
			values, err := labelValues(m, metric.labels)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", metric.name, err)
			}
			series := metric.name
			if len(values) > 0 {
				series += fmt.Sprintf("%q", values)
			}
			if seen[series] {
				return nil, fmt.Errorf("%s is there twice: one kubelet at a time", series)
			}
			seen[series] = true
			if err := r.add(metric.name, values, m, backOffs, inPlace); err != nil {
				return nil, fmt.Errorf("%s: %w", series, err)
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("there is none of the metrics of a kubelet of this project, such as %s: these are of a kubelet without its patch for metrics, or of another program", metricWaiting)
	}
	for _, name := range slices.Sorted(maps.Keys(backOffs)) {
		r.BackOffs = append(r.BackOffs, *backOffs[name])
		r.Restarts += backOffs[name].Restarts
	}
	for _, action := range slices.Sorted(maps.Keys(inPlace)) {
		s := inPlace[action]
		slices.SortFunc(s.Phases, func(a, b phaseStatus) int { return phaseOrder(a.Phase, b.Phase) })
		r.InPlaceRestarts = append(r.InPlaceRestarts, *s)
	}
	r.KubeletStarted = startTime(families[metricStart])
	return r, nil
}

// parseMetrics parses the text format. Its errors name the line where they can.
func parseMetrics(data []byte) (families map[string]*dto.MetricFamily, err error) {
	defer func() {
		// The parser of version 0.70.0 panics on braces with nothing in them.
		if recover() != nil {
			families, err = nil, errors.New("malformed")
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err = parser.TextToMetricFamilies(bytes.NewReader(data))
	if parseErr := (expfmt.ParseError{}); errors.As(err, &parseErr) {
		return nil, fmt.Errorf("line %d: %s", parseErr.Line, parseErr.Msg)
	}
	return families, err
}

// add adds one of statusMetrics, whose labels have these values.
func (r *statusReport) add(name string, values []string, m *dto.Metric, backOffs map[string]*backOffStatus, inPlace map[string]*inPlaceStatus) (err error) {
	switch name {
	case metricWaiting:
		n, err := count(m.GetGauge().GetValue())
		r.WaitingContainers = &n
		return err
	case metricInPlace, metricPhase:
		s := inPlace[values[0]]
		if s == nil {
			s = &inPlaceStatus{Action: values[0], Outcomes: map[string]uint64{}, Phases: []phaseStatus{}}
			inPlace[values[0]] = s
		}
		if name == metricInPlace {
			s.Outcomes[values[1]], err = count(m.GetCounter().GetValue())
			return err
		}
		duration, err := newDistribution(m.GetHistogram())
		s.Phases = append(s.Phases, phaseStatus{Phase: values[1], Duration: duration})
		return err
	}
	s := backOffs[values[0]]
	if s == nil {
		s = &backOffStatus{Type: values[0], Delays: noDistribution(), Lateness: noDistribution()}
		backOffs[values[0]] = s
	}
	switch name {
	case metricDelay:
		s.Delays, err = newDistribution(m.GetHistogram())
		s.Restarts = s.Delays.Count
	case metricLateness:
		if s.lateness, err = together(s.lateness, m.GetHistogram()); err == nil {
			s.Lateness, err = newDistribution(s.lateness)
		}
	case metricResets:
		s.Resets, err = count(m.GetCounter().GetValue())
	case metricKeys:
		s.Keys, err = count(m.GetGauge().GetValue())
	}
	return err
}

// phaseOrder is the order in which a restart has its phases. Others follow by name.
func phaseOrder(a, b string) int {
	rank := map[string]int{"TerminatingForRestart": -2, "Startup": -1}
	return cmp.Or(rank[a]-rank[b], strings.Compare(a, b))
}

// labelValue is what the value of a label may be. Those of a kubelet are words.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,63}$`)

// labelValues returns the values of a metric's labels, which are to be these and
// no others.
func labelValues(m *dto.Metric, names []string) ([]string, error) {
	values := make([]string, len(names))
	for _, pair := range m.GetLabel() {
		i := slices.Index(names, pair.GetName())
		if i < 0 {
			return nil, fmt.Errorf("a kubelet has no label %.64q there: one kubelet's own metrics are needed, not what Prometheus makes of them", pair.GetName())
		}
		if !labelValue.MatchString(pair.GetValue()) {
			return nil, fmt.Errorf("%.64q is no value of the label %s", pair.GetValue(), pair.GetName())
		}
		values[i] = pair.GetValue()
	}
	for i, name := range names {
		if values[i] == "" && name != optionalLabel {
			return nil, fmt.Errorf("without the label %s", name)
		}
	}
	return values, nil
}

// count returns the number that a counter or a gauge has.
func count(value float64) (uint64, error) {
	if !(value >= 0 && value <= 1<<53) || value != math.Trunc(value) {
		return 0, fmt.Errorf("%v is no number of things", value)
	}
	return uint64(value), nil
}

func noDistribution() distribution { return distribution{Buckets: []bucketStatus{}} }

// together returns the histogram of what is in a, which may be nil, and in b.
func together(a, b *dto.Histogram) (*dto.Histogram, error) {
	if a == nil {
		return b, nil
	}
	sum := &dto.Histogram{
		SampleCount: new(a.GetSampleCount() + b.GetSampleCount()),
		SampleSum:   new(a.GetSampleSum() + b.GetSampleSum()),
	}
	if len(a.GetBucket()) != len(b.GetBucket()) {
		return nil, errors.New("its buckets differ from cause to cause")
	}
	for i, bucket := range a.GetBucket() {
		other := b.GetBucket()[i]
		if bucket.GetUpperBound() != other.GetUpperBound() {
			return nil, errors.New("its buckets differ from cause to cause")
		}
		sum.Bucket = append(sum.Bucket, &dto.Bucket{
			UpperBound:      new(bucket.GetUpperBound()),
			CumulativeCount: new(bucket.GetCumulativeCount() + other.GetCumulativeCount()),
		})
	}
	return sum, nil
}

func newDistribution(h *dto.Histogram) (distribution, error) {
	d := noDistribution()
	d.Count, d.SumSeconds = h.GetSampleCount(), h.GetSampleSum()
	if math.IsNaN(d.SumSeconds) || math.IsInf(d.SumSeconds, 0) {
		return d, fmt.Errorf("%v is no sum of durations", d.SumSeconds)
	}
	if h.GetSampleCountFloat() != 0 {
		return d, errors.New("its counts are no whole numbers")
	}
	buckets := slices.Clone(h.GetBucket())
	slices.SortStableFunc(buckets, func(a, b *dto.Bucket) int { return cmp.Compare(a.GetUpperBound(), b.GetUpperBound()) })
	if n := len(buckets); n < 2 || !math.IsInf(buckets[n-1].GetUpperBound(), 1) {
		return d, errors.New("it is a histogram without buckets up to +Inf")
	}
	if last := buckets[len(buckets)-1].GetCumulativeCount(); last != d.Count {
		return d, fmt.Errorf("its buckets have %d, and its count is %d", last, d.Count)
	}
	below, lower := uint64(0), math.Inf(-1)
	for i, b := range buckets {
		upper, upTo := b.GetUpperBound(), b.GetCumulativeCount()
		if !(upper > lower) || upTo < below { // The first of them NaN, for one.
			return d, errors.New("its buckets do not add up")
		}
		if upTo > below {
			bucket := bucketStatus{UpTo: bound{Seconds: upper}, Count: upTo - below}
			if i == len(buckets)-1 {
				bucket.UpTo = bound{Seconds: lower, Above: true}
			}
			d.Buckets = append(d.Buckets, bucket)
			d.Max = &bucket.UpTo
		}
		below, lower = upTo, upper
	}
	d.P50, d.P99 = quantile(0.5, buckets), quantile(0.99, buckets)
	return d, nil
}

// quantile is histogram_quantile of Prometheus, but says where that is the last
// bound for want of another. The buckets are sorted, and go up to +Inf.
func quantile(q float64, buckets []*dto.Bucket) *bound {
	last := len(buckets) - 1
	total := buckets[last].GetCumulativeCount()
	if total == 0 {
		return nil
	}
	rank := q * float64(total)
	i := slices.IndexFunc(buckets, func(b *dto.Bucket) bool { return float64(b.GetCumulativeCount()) >= rank })
	upper := buckets[i].GetUpperBound()
	switch {
	case i == last:
		return &bound{Seconds: buckets[last-1].GetUpperBound(), Above: true}
	case i == 0 && upper <= 0:
		return &bound{Seconds: upper}
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = buckets[i-1].GetUpperBound(), float64(buckets[i-1].GetCumulativeCount())
	}
	in := float64(buckets[i].GetCumulativeCount()) - below
	return &bound{Seconds: lower + (upper-lower)*(rank-below)/in}
}

// startTime is when a process started, or nil if that is not known.
func startTime(family *dto.MetricFamily) *time.Time {
	if family.GetType() != dto.MetricType_GAUGE || len(family.GetMetric()) != 1 {
		return nil
	}
	seconds := family.GetMetric()[0].GetGauge().GetValue()
	if !(seconds > 0 && seconds < 1<<36) {
		return nil
	}
	t := time.UnixMilli(int64(seconds * 1000)).UTC().Truncate(time.Second)
	return &t
}
