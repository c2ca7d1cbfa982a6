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

// HistogramMetric collects observed values.
type HistogramMetric interface {
	Observe(float64)
}

// KeyedHistogramMetric is a HistogramMetric that also gets the key of each value.
// ObserveKey is then called instead of Observe.
type KeyedHistogramMetric interface {
	HistogramMetric
	ObserveKey(key string, value float64)
}

// MetricsProvider creates the metrics of a Backoff, as the provider of client-go's
// workqueue does for a queue. Each call of SetMetrics calls each method once with the
// given name. A method may return nil for a metric that the provider does not
// support.
type MetricsProvider interface {
	// NewKeysMetric returns the gauge of currently known keys.
	NewKeysMetric(name string) GaugeMetric
	// NewDelayMetric returns the histogram of the delays of allowed restarts, in
	// seconds. An immediate restart has a delay of 0. A restart that is given back
	// and allowed again is observed once.
	NewDelayMetric(name string) HistogramMetric
	// NewLatenessMetric returns the histogram of how long after the end of its delay
	// a restart was allowed, in seconds. Restarts without a delay are not observed.
	// The result may be a KeyedHistogramMetric.
	NewLatenessMetric(name string) HistogramMetric
	// NewResetsMetric returns the counter of resets: the reset rule reset a key, or
	// GC forgot a key that did not wait.
	NewResetsMetric(name string) CounterMetric
}

// SetMetrics makes p report to the metrics that provider creates for name. Call it
// before any other method. The gauge counts the keys from then on. The other metrics
// cover only Decide, Allow, Start and GC. The metrics are called by the goroutine
// that calls p, in part with p's lock held, so they must not call a method of p.
// Without SetMetrics, p reports nothing.
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

// metrics has no nil field.
type metrics struct {
	keys            GaugeMetric
	delay, lateness HistogramMetric
	resets          CounterMetric
}

// noMetric replaces a metric that a provider does not support.
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
