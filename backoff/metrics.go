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

// KeyedHistogramMetric is a HistogramMetric that is told which key a value is of, by
// a call of ObserveKey in place of Observe.
type KeyedHistogramMetric interface {
	HistogramMetric
	ObserveKey(key string, value float64)
}

// MetricsProvider makes the metrics of a Backoff, as the provider of
// client-go's workqueue does for a queue. Each method is called once for each
// call of SetMetrics, with the name that was passed there. It may return nil for
// a metric that it does not have.
type MetricsProvider interface {
	// NewKeysMetric counts the keys that are known at present.
	NewKeysMetric(name string) GaugeMetric
	// NewDelayMetric observes the delay in seconds of each restart when it is
	// allowed, 0 for an immediate one. Its count is that of the restarts: one that is
	// given back and allowed again is one.
	NewDelayMetric(name string) HistogramMetric
	// NewLatenessMetric observes how many seconds after the end of its delay a
	// restart that had a delay was allowed. It may be a KeyedHistogramMetric.
	NewLatenessMetric(name string) HistogramMetric
	// NewResetsMetric counts how often the reset rule started a key over, or had GC
	// forget one that did not wait.
	NewResetsMetric(name string) CounterMetric
}

// SetMetrics makes p report to the metrics that provider makes for name. Call it
// before the first other method. Keys are counted from then on; all else concerns
// Decide, Start and GC alone. The metrics are called by whatever goroutine calls p,
// some with p's lock held, so that they must not call a method of p.
// Without a call of SetMetrics nothing is reported.
func (p *Backoff) SetMetrics(name string, provider MetricsProvider) {
	m := metrics{
		keys:     provider.NewKeysMetric(name),
		delay:    provider.NewDelayMetric(name),
		lateness: provider.NewLatenessMetric(name),
		resets:   provider.NewResetsMetric(name),
	}
	if m.keys == nil {
		m.keys = noMetric{}
	}
	if m.delay == nil {
		m.delay = noMetric{}
	}
	if m.lateness == nil {
		m.lateness = noMetric{}
	}
	if m.resets == nil {
		m.resets = noMetric{}
	}
	if p.extras == nil {
		p.extras = &extras{}
	}
	p.extras.observer = m
}

// metrics has all of its fields.
type metrics struct {
	keys            GaugeMetric
	delay, lateness HistogramMetric
	resets          CounterMetric
}

// noMetric takes the place of a metric that a provider does not have.
type noMetric struct{}

func (noMetric) Inc()            {}
func (noMetric) Dec()            {}
func (noMetric) Observe(float64) {}

func (m metrics) keyAdded() { m.keys.Inc() }

func (m metrics) keyRemoved() { m.keys.Dec() }

func (m metrics) recovered() { m.resets.Inc() }

func (m metrics) decided(id string, d Decision, now time.Time) {
	if d.Reset && !d.Again {
		m.resets.Inc()
	}
	if !d.Allowed || d.Again {
		return
	}
	m.delay.Observe(d.Delay.Seconds())
	if d.Delay == 0 {
		return
	}
	late := now.Sub(d.RetryAt).Seconds()
	if keyed, ok := m.lateness.(KeyedHistogramMetric); ok {
		keyed.ObserveKey(id, late)
	} else {
		m.lateness.Observe(late)
	}
}
