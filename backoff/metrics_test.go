// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"reflect"
	"testing"
)

// recorder is a MetricsProvider that records the values.
type recorder struct{ got map[string][]float64 }

type recorded struct {
	r    *recorder
	name string
}

func (m recorded) Observe(v float64) { m.r.got[m.name] = append(m.r.got[m.name], v) }
func (m recorded) Inc()              { m.Observe(1) }
func (m recorded) Dec()              { m.Observe(-1) }

func (r *recorder) NewKeysMetric(name string) GaugeMetric { return recorded{r, name + " keys"} }
func (r *recorder) NewDelayMetric(name string) HistogramMetric {
	return recorded{r, name + " delay"}
}
func (r *recorder) NewResetsMetric(name string) CounterMetric { return recorded{r, name + " resets"} }
func (r *recorder) NewLatenessMetric(name string) HistogramMetric {
	return recorded{r, name + " lateness"}
}

func TestMetrics(t *testing.T) {
	r := &recorder{got: map[string][]float64{}}
	b := kubelet(10, 300)()
	b.SetMetrics("c", r)
	for _, s := range []step{{event: 0, now: 0}, {event: 0, now: 1}, {event: 0, now: 2}, {event: 0, now: 12.5}, {event: 700, now: 701}} {
		b.DecideAt("a", seconds(s.event), seconds(s.now))
	}
	b.NextAt("b", start, start)
	b.Reset("a")
	b.Reset("a")
	b.NextAt("c", start, start)
	b.NextAt("d", start, start)
	b.DecideAt("d", seconds(1), seconds(1)) // waits, and is given up
	b.GCAt(seconds(601))                    // removes b and c
	b.GCAt(seconds(612))                    // removes d
	want := map[string][]float64{
		"c keys":     {1, 1, -1, 1, 1, -1, -1, -1},
		"c delay":    {0, 10, 0},
		"c resets":   {1, 1, 1}, // a was reset when it exited, b and c before
		"c lateness": {2.5},
	}
	if !reflect.DeepEqual(r.got, want) {
		t.Errorf("got %v, want %v", r.got, want)
	}
}

// keyedRecorder is a recorder whose lateness metric gets the keys.
type keyedRecorder struct{ recorder }

type keyed struct{ recorded }

func (m keyed) ObserveKey(key string, v float64) { m.r.got[key] = append(m.r.got[key], v) }

func (r *keyedRecorder) NewLatenessMetric(name string) HistogramMetric {
	return keyed{recorded{&r.recorder, name}}
}

func TestKeyedLateness(t *testing.T) {
	r := &keyedRecorder{recorder{got: map[string][]float64{}}}
	b := kubelet(10, 300)()
	b.SetMetrics("c", r)
	for _, id := range []string{"a", "b"} {
		b.DecideAt(id, seconds(0), seconds(0))
	}
	b.DecideAt("a", seconds(1), seconds(12))
	b.DecideAt("b", seconds(1), seconds(13))
	b.FailAt("b", seconds(14))
	b.StartAt("b", seconds(38))
	for id, want := range map[string][]float64{"a": {1}, "b": {2, 4}, "c": nil} {
		if !reflect.DeepEqual(r.got[id], want) {
			t.Errorf("lateness of %s = %v, want %v", id, r.got[id], want)
		}
	}
}

// panics is a provider with some metrics that panic, and some that are nil.
type panics struct{}

type panicMetric struct{}

func (panicMetric) Inc()            { panic("Inc") }
func (panicMetric) Dec()            { panic("Dec") }
func (panicMetric) Observe(float64) { panic("Observe") }

func (panics) NewKeysMetric(string) GaugeMetric         { return panicMetric{} }
func (panics) NewDelayMetric(string) HistogramMetric    { return panicMetric{} }
func (panics) NewResetsMetric(string) CounterMetric     { return nil }
func (panics) NewLatenessMetric(string) HistogramMetric { return nil }

// A panic in a metric leaves no lock held.
func TestMetricsPanicsReleaseTheLock(t *testing.T) {
	b := kubelet(10, 300)()
	b.NextAt("a", start, start)
	b.SetMetrics("c", panics{})
	for _, f := range []func(){
		func() { b.NextAt("b", start, start) },
		func() { b.DecideAt("c", start, start) },
		func() { b.Reset("a") },
		func() { b.GCAt(seconds(1e6)) },
	} {
		panicking(t, f)
		if !b.lock.TryLock() {
			t.Fatal("the lock is held")
		}
		b.lock.Unlock()
	}
}
