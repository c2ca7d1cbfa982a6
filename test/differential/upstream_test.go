// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

func makeUpstream(initial, max time.Duration, tc clock.Clock, jitter float64, rule resetRule) dropIn {
	b := flowcontrol.NewFakeBackOffWithJitter(initial, max, tc, jitter)
	b.HasExpiredFunc = rule
	return b
}

// Every check must fail on upstream's type, and doc.go must have a row for it.
func TestUpstreamFailsEveryCorrection(t *testing.T) {
	doc, err := os.ReadFile("../../backoff/doc.go")
	require.NoError(t, err)
	_, rows, found := strings.Cut(string(doc), "# Differences from client-go")
	require.True(t, found)
	for _, c := range corrections {
		t.Run(c.name, func(t *testing.T) {
			require.Error(t, c.check(makeUpstream))
			assert.Contains(t, rows, "//\t"+c.name+" ", "the row in doc.go")
		})
	}
	documented := 0
	for line := range strings.Lines(rows) {
		if strings.HasPrefix(line, "//\t") && !strings.HasPrefix(line, "//\t ") {
			documented++
		}
	}
	assert.Equal(t, len(corrections), documented, "rows in doc.go")
}

// TestUpstreamsTests: client-go's own tests pass with the library's files instead of client-go's. Two of the tests assert what is
// a defect: TestBackoffGC that GC removes a key that may wait, and TestBackoffWithJitter that jitter compounds.
func TestUpstreamsTests(t *testing.T) {
	modules, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}\n{{.Path}} {{.Version}}", "k8s.io/client-go", "k8s.io/utils").Output()
	require.NoError(t, err)
	lines := strings.Split(string(modules), "\n")
	sums, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	tests, err := os.ReadFile(filepath.Join(lines[0], "util/flowcontrol/backoff_test.go"))
	require.NoError(t, err)
	corrected := string(tests)
	for old, now := range map[string]string{
		"tc.Step(maxDuration + step)\n\tb.GC()\n\tr, found": "tc.Step(2 * maxDuration)\n\tb.GC()\n\tr, found",
		"prevDelayGot := delayGot\n":                        "prevDelayGot := initial\n",
		"prevDelayGot = delayGot\n":                         "prevDelayGot *= 2\n",
	} {
		require.Equal(t, 1, strings.Count(corrected, old), old)
		corrected = strings.Replace(corrected, old, now, 1)
	}
	files := map[string]string{"go.mod": "module flowcontrol\n\ngo 1.22\n\nrequire " + lines[3] + "\n", "go.sum": string(sums), "backoff_test.go": corrected}
	sources, err := filepath.Glob("../../backoff/*.go")
	require.NoError(t, err)
	for _, file := range sources {
		if !strings.HasSuffix(file, "_test.go") {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			files[filepath.Base(file)] = strings.Replace(string(content), "\npackage backoff\n", "\npackage flowcontrol\n", 1)
		}
	}
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	cmd := exec.Command("go", "test", "-v", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, strings.Count(corrected, "\nfunc Test"), strings.Count("\n"+string(out), "\n--- PASS: "), string(out))
}

// pair runs the same operations on a Backoff of each kind, with one clock. It excuses
// three of the documented differences: gc-cuts-wait, event-answered and the delays of 0 of
// negative-delay. Its operations cannot reach the others.
type pair struct {
	tc       *testingclock.FakeClock
	ours     *Backoff
	upstream *flowcontrol.Backoff
	limit    time.Duration
	rule     resetRule
	// event is when a key last advanced, or the time of the newest later event that
	// Decide found it waiting after.
	event map[string]time.Time
	log   []string
}

func newPair(initial, limit time.Duration, rule resetRule) *pair {
	p := &pair{tc: testingclock.NewFakeClock(start), limit: limit, rule: rule, event: map[string]time.Time{}}
	p.ours = makeCorrected(initial, limit, p.tc, 0, rule).(*Backoff)
	p.upstream = makeUpstream(initial, limit, p.tc, 0, rule).(*flowcontrol.Backoff)
	if rule == nil {
		p.rule = ProportionalReset
	}
	p.log = append(p.log, fmt.Sprintf("initial %s, max %s", initial, limit))
	return p
}

const operations = 8

// do applies operation op to key id; amount is how far the clock or the event time
// moves.
func (p *pair) do(op int, id string, amount time.Duration) error {
	event := p.tc.Now().Add(-amount)
	p.log = append(p.log, fmt.Sprintf("operation %d, %s, %s", op, id, amount))
	switch op {
	case 0:
		p.tc.Step(amount)
	case 1:
		p.ours.Next(id, event)
		p.upstream.Next(id, event)
		p.event[id] = p.tc.Now()
	case 2:
		if ours, upstream := p.ours.IsInBackOffSince(id, event), p.upstream.IsInBackOffSince(id, event); ours != upstream {
			return fmt.Errorf("%s waits since the event: ours %t, upstream %t", id, ours, upstream)
		}
	case 3:
		if ours, upstream := p.ours.IsInBackOffSinceUpdate(id, event), p.upstream.IsInBackOffSinceUpdate(id, event); ours != upstream && p.ours.Get(id) > 0 {
			return fmt.Errorf("%s waits since its advance: ours %t, upstream %t", id, ours, upstream)
		}
	case 4:
		p.ours.GC()
		p.upstream.GC()
		for _, id := range []string{"a", "b", "c"} {
			if delay := p.ours.Get(id); p.upstream.Get(id) == 0 && delay != 0 {
				if p.rule(p.tc.Now(), p.event[id].Add(delay), p.limit) {
					return fmt.Errorf("%s may have waited until %s ago and GC left it", id, p.tc.Since(p.event[id].Add(delay)))
				}
				p.ours.Reset(id)
			}
		}
	case 5:
		p.ours.Reset(id)
		p.upstream.Reset(id)
	case 6:
		p.ours.DeleteEntry(id)
		p.upstream.DeleteEntry(id)
	case 7:
		delay := p.upstream.Get(id)
		d := p.ours.Decide(id, event, p.tc.Now())
		// An answered event counts from the answer. An event before the one that the
		// key waits after changes nothing.
		if delay > 0 && event.Before(p.event[id]) {
			event = p.event[id]
		}
		if waits := p.upstream.IsInBackOffSince(id, event); waits == d.Allowed {
			return fmt.Errorf("%s waits: ours %t, upstream %t", id, !d.Allowed, waits)
		}
		p.event[id] = event
		if d.Allowed {
			p.upstream.Next(id, event)
			p.event[id] = p.tc.Now()
		} else if d.Delay != delay {
			return fmt.Errorf("%s: Decide says %s, upstream %s", id, d.Delay, delay)
		}
	}
	if ours, upstream := p.ours.Get(id), p.upstream.Get(id); ours != upstream {
		return fmt.Errorf("%s: the delay is %s, upstream's %s", id, ours, upstream)
	}
	return nil
}

// run reads a configuration and then operations from data until none is left.
func run(data []byte) error {
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	limits := []time.Duration{0, 1, time.Second, 5 * time.Second, 300 * time.Second, 24 * time.Hour}
	limit := limits[next()%len(limits)]
	initial := limit * time.Duration(next()) / 255
	rules := []resetRule{nil, FlatReset(ContainerResetPeriod), FlatReset(8 * time.Second), neverReset}
	p := newPair(initial, limit, rules[next()%len(rules)])
	units := []time.Duration{1, time.Millisecond, time.Second, limit/8 + 1, initial/2 + 1}
	for len(data) > 0 {
		op := next()
		amount := time.Duration(next()) * units[next()%len(units)]
		id := string(rune('a' + op/operations%3))
		if err := p.do(op%operations, id, amount); err != nil {
			return fmt.Errorf("%w\nafter\n%s", err, strings.Join(p.log, "\n"))
		}
	}
	return nil
}

func TestDifferential(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewSource(seed))
	sequences := 20_000
	if testing.Short() {
		sequences = 4_000
	}
	for sequence := range sequences {
		data := make([]byte, 3+3*r.Intn(100))
		r.Read(data)
		require.NoError(t, run(data), "sequence %d of seed %d", sequence, seed)
	}
}

func FuzzDifferential(f *testing.F) {
	f.Add([]byte{4, 9, 1, 1, 0, 0, 0, 200, 2, 2, 0, 0, 4, 0, 0, 0, 255, 2, 2, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := run(data); err != nil {
			t.Error(err)
		}
	})
}
