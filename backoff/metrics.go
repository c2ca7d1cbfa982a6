// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// GaugeMetric is a number that goes up and down.
type GaugeMetric interface {
	Inc()
	Dec()
}

// CounterMetric is a number that only goes up.
type CounterMetric interface {
	Inc()
}

// HistogramMetric is a distribution of observed values.
type HistogramMetric interface {
	Observe(float64)
}

// MetricsProvider makes the metrics of a Backoff, as the provider of
// client-go's workqueue does for a queue. Each method is called once for each
// call of SetMetrics, with the name that was passed there.
type MetricsProvider interface {
	// NewKeysMetric counts the keys that are known at present.
	NewKeysMetric(name string) GaugeMetric
	// NewWaitsMetric counts the restarts that had to wait.
	NewWaitsMetric(name string) CounterMetric
	// NewRestartsMetric counts the restarts that were allowed.
	NewRestartsMetric(name string) CounterMetric
	// NewResetsMetric counts how often the reset rule started a key over.
	NewResetsMetric(name string) CounterMetric
	// NewLatenessMetric observes how many seconds after the end of its delay a
	// restart that had a delay was allowed.
	NewLatenessMetric(name string) HistogramMetric
}

// SetMetrics makes p report to the metrics that provider makes for name. Keys
// are counted from then on; all else concerns Decide alone. The metrics are
// called from whatever calls p, those of keys under its lock. Without a call
// of SetMetrics nothing is reported. It is to be called before the first other
// method.
func (p *Backoff) SetMetrics(name string, provider MetricsProvider) {
	p.metrics = metrics{
		keys:     provider.NewKeysMetric(name),
		waits:    provider.NewWaitsMetric(name),
		restarts: provider.NewRestartsMetric(name),
		resets:   provider.NewResetsMetric(name),
		lateness: provider.NewLatenessMetric(name),
	}
}

// metrics has either all of its fields or none.
type metrics struct {
	keys     GaugeMetric
	waits    CounterMetric
	restarts CounterMetric
	resets   CounterMetric
	lateness HistogramMetric
}

func (m *metrics) keyAdded() {
	if m.keys != nil {
		m.keys.Inc()
	}
}

func (m *metrics) keyRemoved() {
	if m.keys != nil {
		m.keys.Dec()
	}
}

func (m *metrics) decided(d *Decision, now time.Time) {
	if d.Reset {
		m.resets.Inc()
	}
	if d.FirstWait {
		m.waits.Inc()
	}
	if d.Allowed {
		m.restarts.Inc()
		if d.Delay > 0 {
			m.lateness.Observe(now.Sub(d.RetryAt).Seconds())
		}
	}
}
