// SPDX-License-Identifier: Apache-2.0

// Package status reads the metrics of a kubelet of this project and reports its
// container restarts and in-place pod restarts.
package status

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

// These limits bound memory and time, for the lines of the metrics in the report. A kubelet
// has less than a tenth of each. The parser skips all other lines, of which a kubelet may
// have any number.
const (
	maxLines = 10000
	maxLine  = 1 << 10
)

// The metrics of a kubelet of this project.
const (
	metricWaiting  = "kubelet_restart_backoff_waiting_containers"
	metricDelay    = "kubelet_restart_backoff_delay_seconds"
	metricLateness = "kubelet_restart_backoff_lateness_seconds"
	metricResets   = "kubelet_restart_backoff_resets_total"
	metricKeys     = "kubelet_restart_backoff_keys"
	metricAsked    = "kubelet_restart_at_annotations_total"
	metricLimit    = "kubelet_restart_limit_exceeded_pods_total"
	metricInPlace  = "kubelet_pod_in_place_restarts_total"
	metricPhase    = "kubelet_pod_in_place_restart_phase_duration_seconds"
	// metricStart is a metric of every process.
	metricStart = "process_start_time_seconds"
)

// metrics lists the type and the labels of each metric.
var metrics = []struct {
	name   string
	kind   dto.MetricType
	labels []string
}{
	{metricWaiting, dto.MetricType_GAUGE, nil},
	{metricDelay, dto.MetricType_HISTOGRAM, []string{"type"}},
	{metricLateness, dto.MetricType_HISTOGRAM, []string{"type"}},
	{metricResets, dto.MetricType_COUNTER, []string{"type"}},
	{metricKeys, dto.MetricType_GAUGE, []string{"type"}},
	{metricAsked, dto.MetricType_COUNTER, []string{"outcome"}},
	{metricLimit, dto.MetricType_COUNTER, nil},
	{metricInPlace, dto.MetricType_COUNTER, []string{"action", "outcome"}},
	{metricPhase, dto.MetricType_HISTOGRAM, []string{"action", "phase"}},
}

// Report is the output of crashloop status. Scripts read its JSON form: later versions
// may add fields; they do not rename or remove any.
type Report struct {
	// Source is the file or URL of the metrics.
	Source string `json:"source"`
	// KubeletStarted is the start time of the kubelet. Everything except the gauges counts
	// from it. It is missing if the metrics do not have it.
	KubeletStarted *time.Time `json:"kubeletStarted,omitempty"`
	// WaitingContainers is the number of containers in CrashLoopBackOff. It is missing
	// if the metrics do not have it.
	WaitingContainers *uint64 `json:"waitingContainers,omitempty"`
	// Restarts is the number of restarts in all back-offs.
	Restarts        uint64          `json:"restarts"`
	BackOffs        []backOffStatus `json:"backOffs"`
	InPlaceRestarts []inPlaceStatus `json:"inPlaceRestarts"`
	// RestartAtAnnotations maps outcomes to the number of restart-at annotations. It is
	// missing if the kubelet ignores them.
	RestartAtAnnotations map[string]uint64 `json:"restartAtAnnotations,omitempty"`
	// RestartLimitExceededPods is the number of pods that have ended because of a
	// max-restarts annotation. It is missing if the kubelet ignores them.
	RestartLimitExceededPods *uint64 `json:"restartLimitExceededPods,omitempty"`
}

// backOffStatus is one of the kubelet's back-offs.
type backOffStatus struct {
	// Type is container, or pod for in-place pod restarts.
	Type     string       `json:"type"`
	Restarts uint64       `json:"restarts"`
	Resets   uint64       `json:"resets"`
	Keys     uint64       `json:"keys"`
	Delays   distribution `json:"delays"`
	Lateness distribution `json:"lateness"`
}

// inPlaceStatus sums up the in-place pod restarts with one action.
type inPlaceStatus struct {
	Action string `json:"action"`
	// Outcomes maps outcomes to the number of restarts.
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
	// P50, P99 and Max are missing if the count is 0.
	P50 *bound `json:"p50,omitempty"`
	P99 *bound `json:"p99,omitempty"`
	// Max is the upper bound of the highest bucket that is not empty.
	Max *bound `json:"max,omitempty"`
	// Buckets lists the buckets that are not empty.
	Buckets []bucketStatus `json:"buckets"`
}

// bound is a duration.
type bound struct {
	Seconds float64 `json:"seconds"`
	// Above is true for a duration above the highest bound of the histogram.
	Above bool `json:"above,omitempty"`
}

// bucketStatus is the count of one bucket. It does not include the buckets below.
type bucketStatus struct {
	UpTo  bound  `json:"upTo"`
	Count uint64 `json:"count"`
}

// New returns the report for metrics in the Prometheus text format. An error names the
// line or the metric.
func New(data []byte) (*Report, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("empty: expected metrics in the Prometheus text format")
	}
	data, err := relevant(data)
	if err != nil {
		return nil, err
	}
	families, err := parseMetrics(data)
	if err != nil {
		return nil, fmt.Errorf("%w: expected the Prometheus text format of a kubelet's /metrics", err)
	}
	r := &Report{BackOffs: []backOffStatus{}, InPlaceRestarts: []inPlaceStatus{}}
	found := false
	backOffs, inPlace := map[string]*backOffStatus{}, map[string]*inPlaceStatus{}
	for _, metric := range metrics {
		family := families[metric.name]
		if family == nil {
			continue
		}
		found = true
		if family.GetType() != metric.kind {
			return nil, fmt.Errorf("%s: has the type %s, must be a %s", metric.name,
				strings.ToLower(family.GetType().String()), strings.ToLower(metric.kind.String()))
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
				return nil, fmt.Errorf("%s: found twice: pass the metrics of one kubelet only", series)
			}
			seen[series] = true
			if err := r.add(metric.name, values, m, backOffs, inPlace); err != nil {
				return nil, fmt.Errorf("%s: %w", series, err)
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("found no metric of a patched kubelet, such as %s: these metrics come from a kubelet without the metrics patch, or from another program", metricWaiting)
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

// nameOf returns the name of the metric in a line, without the suffix of a histogram's series.
func nameOf(line []byte) []byte {
	line = bytes.TrimPrefix(bytes.TrimPrefix(line, []byte("# HELP ")), []byte("# TYPE "))
	name := line[:bytes.IndexAny(line, "{ \t\n")]
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name = bytes.TrimSuffix(name, []byte(suffix))
	}
	return name
}

// relevant returns the lines of the metrics in the report, in the memory of data. The others
// become empty, so that the numbers of lines stay.
func relevant(data []byte) ([]byte, error) {
	names := map[string]bool{metricStart: true}
	for _, m := range metrics {
		names[m.name] = true
	}
	lines, n, kept := data[:0], 0, 0
	for line := range bytes.Lines(data) {
		n++
		if !bytes.HasSuffix(line, []byte("\n")) {
			return nil, fmt.Errorf("line %d: unexpected end: the metrics are cut off", n)
		}
		if !names[string(nameOf(line))] {
			lines = append(lines, '\n')
			continue
		}
		if kept++; kept > maxLines {
			return nil, fmt.Errorf("line %d: more than %d lines of a kubelet's restarts: no kubelet has that many", n, maxLines)
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("line %d: more than %d bytes: no kubelet has a metric that long", n, maxLine)
		}
		lines = append(lines, line...)
	}
	return lines, nil
}

// parseMetrics parses the text format. An error names the line if it is known.
func parseMetrics(data []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if parseErr := (expfmt.ParseError{}); errors.As(err, &parseErr) {
		return nil, fmt.Errorf("line %d: %s", parseErr.Line, parseErr.Msg)
	}
	return families, err
}

// add adds a metric with these label values to the report.
func (r *Report) add(name string, values []string, m *dto.Metric, backOffs map[string]*backOffStatus, inPlace map[string]*inPlaceStatus) (err error) {
	switch name {
	case metricWaiting:
		n, err := count(m.GetGauge().GetValue())
		r.WaitingContainers = &n
		return err
	case metricAsked:
		if r.RestartAtAnnotations == nil {
			r.RestartAtAnnotations = map[string]uint64{}
		}
		r.RestartAtAnnotations[values[0]], err = count(m.GetCounter().GetValue())
		return err
	case metricLimit:
		n, err := count(m.GetCounter().GetValue())
		r.RestartLimitExceededPods = &n
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
		s.Lateness, err = newDistribution(m.GetHistogram())
	case metricResets:
		s.Resets, err = count(m.GetCounter().GetValue())
	case metricKeys:
		s.Keys, err = count(m.GetGauge().GetValue())
	}
	return err
}

// phaseOrder sorts phases in the order of a restart. Unknown phases follow by name.
func phaseOrder(a, b string) int {
	rank := map[string]int{"TerminatingForRestart": -2, "Startup": -1}
	return cmp.Or(rank[a]-rank[b], strings.Compare(a, b))
}

// labelValue matches the label values of a kubelet's metrics.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,63}$`)

// labelValues returns the values of the named labels. It returns an error for a metric with
// other labels.
func labelValues(m *dto.Metric, names []string) ([]string, error) {
	values := make([]string, len(names))
	for _, pair := range m.GetLabel() {
		i := slices.Index(names, pair.GetName())
		if i < 0 {
			return nil, fmt.Errorf("unexpected label %.64q: pass the metrics from the kubelet itself, not from a Prometheus server", pair.GetName())
		}
		if !labelValue.MatchString(pair.GetValue()) {
			return nil, fmt.Errorf("label %s: invalid value %.64q", pair.GetName(), pair.GetValue())
		}
		values[i] = pair.GetValue()
	}
	for i, name := range names {
		if values[i] == "" {
			return nil, fmt.Errorf("missing label %s", name)
		}
	}
	return values, nil
}

// count returns the value of a counter or a gauge.
func count(value float64) (uint64, error) {
	if !(value >= 0 && value <= 1<<53) || value != math.Trunc(value) {
		return 0, fmt.Errorf("%v is not a count: must be a whole number of at least 0", value)
	}
	return uint64(value), nil
}

func noDistribution() distribution { return distribution{Buckets: []bucketStatus{}} }

func newDistribution(h *dto.Histogram) (distribution, error) {
	d := noDistribution()
	d.Count, d.SumSeconds = h.GetSampleCount(), h.GetSampleSum()
	if math.IsNaN(d.SumSeconds) || math.IsInf(d.SumSeconds, 0) {
		return d, fmt.Errorf("%v is not a sum of durations", d.SumSeconds)
	}
	if h.GetSampleCountFloat() != 0 {
		return d, errors.New("the counts are not whole numbers")
	}
	buckets := slices.Clone(h.GetBucket())
	slices.SortStableFunc(buckets, func(a, b *dto.Bucket) int { return cmp.Compare(a.GetUpperBound(), b.GetUpperBound()) })
	if n := len(buckets); n < 2 || !math.IsInf(buckets[n-1].GetUpperBound(), 1) {
		return d, errors.New("the histogram has no buckets up to +Inf")
	}
	if last := buckets[len(buckets)-1].GetCumulativeCount(); last != d.Count {
		return d, fmt.Errorf("the buckets have %d entries, but the count is %d", last, d.Count)
	}
	below, lower := uint64(0), math.Inf(-1)
	for i, b := range buckets {
		upper, upTo := b.GetUpperBound(), b.GetCumulativeCount()
		if !(upper > lower) || upTo < below { // Also false for NaN.
			return d, errors.New("the buckets are not in order")
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

// quantile computes histogram_quantile of Prometheus: linear interpolation within a bucket.
// In the last bucket, it returns the lower bound with Above set. The buckets must be sorted
// and end with +Inf.
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

// startTime returns the start time of the process, or nil if it is unknown.
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
