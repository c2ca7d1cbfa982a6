// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// Instance is the label instance of the series of a recording.
const Instance = "node-1"

// Database is a Prometheus that has scraped a kubelet.
type Database struct {
	db         *tsdb.DB
	dir        string
	engine     *promql.Engine
	start, end time.Time
	every      time.Duration
}

// NewDatabase returns a database of at least two scrapes. The caller must close
// it.
func NewDatabase(scrapes []Scrape) (_ *Database, err error) {
	dir, err := os.MkdirTemp("", "kubelet-backoff-")
	if err != nil {
		return nil, err
	}
	options := tsdb.DefaultOptions()
	options.RetentionDuration = 0 // A recording may be old.
	options.MinBlockDuration = (24 * time.Hour).Milliseconds()
	options.MaxBlockDuration = options.MinBlockDuration
	db, err := tsdb.Open(dir, nil, nil, options, nil)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	first, last := scrapes[0].At, scrapes[len(scrapes)-1].At
	d := &Database{
		db: db, dir: dir, start: first, end: last,
		every: (last.Sub(first) / time.Duration(len(scrapes)-1)).Round(100 * time.Millisecond),
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{}),
		}),
	}
	for _, s := range scrapes {
		if err := d.add(s); err != nil {
			return nil, errors.Join(fmt.Errorf("the scrape at %s: %w", s.At.Format(time.RFC3339Nano), err), d.Close())
		}
	}
	return d, nil
}

// add stores a scrape as Prometheus does.
func (d *Database) add(s Scrape) error {
	p, err := textparse.New(s.Metrics, "text/plain; version=0.0.4", nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	appender := d.db.Appender(context.Background())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return appender.Commit()
		}
		if err != nil {
			return errors.Join(err, appender.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		p.Labels(&series)
		b := labels.NewBuilder(series)
		b.Set("instance", Instance)
		b.Set("job", "kubelet")
		_, _, value := p.Series()
		if _, err := appender.Append(0, b.Labels(), s.At.UnixMilli(), value); err != nil {
			return errors.Join(err, appender.Rollback())
		}
	}
}

// Query evaluates an expression from the second scrape to the last.
func (d *Database) Query(expr string, step time.Duration) (promql.Matrix, error) {
	start, end := d.Range()
	q, err := d.engine.NewRangeQuery(context.Background(), d.db, nil, expr, start, end, step)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(context.Background())
	if result.Err != nil {
		return nil, result.Err
	}
	matrix, err := result.Matrix()
	if err != nil {
		return nil, err
	}
	// The points are the query's, which is closed.
	copied := make(promql.Matrix, len(matrix))
	for i, series := range matrix {
		copied[i] = promql.Series{Metric: series.Metric.Copy(), Floats: append([]promql.FPoint(nil), series.Floats...)}
	}
	return copied, nil
}

// Range is the time that Query evaluates expressions in.
func (d *Database) Range() (start, end time.Time) { return d.start.Add(d.every), d.end }

// Step is a step of queries that gives some 240 of them, as Grafana has in a panel,
// but not more than there were scrapes.
func (d *Database) Step() time.Duration {
	return max(d.every, d.end.Sub(d.start)/240).Round(time.Second / 10)
}

// RateInterval is Grafana's $__rate_interval.
func (d *Database) RateInterval() time.Duration { return max(d.Step()+d.every, 4*d.every) }

// Close removes the database.
func (d *Database) Close() error { return errors.Join(d.db.Close(), os.RemoveAll(d.dir)) }
