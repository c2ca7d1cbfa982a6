// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Scrape is what the metrics of a kubelet were at a time, in the text format.
type Scrape struct {
	At      time.Time
	Metrics []byte
}

// Prefixes are the prefixes of the names of the recorded metrics: those in the
// dashboard, and the start of the process.
var Prefixes = []string{
	"kubelet_restart_", "kubelet_pod_in_place_restart", "kubelet_runtime_operations_total", "kubelet_pod_worker_duration_seconds",
	"rest_client_requests_total", "process_cpu_seconds_total", "process_start_time_seconds",
}

// scrapeMark is the start of the line before each scrape of a recording. It is a
// comment of the text format.
const scrapeMark = "# scrape "

// WriteScrape appends a scrape to a recording, with no other metrics than those of
// Prefixes.
func WriteScrape(w io.Writer, s Scrape) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s\n", scrapeMark, s.At.UTC().Format(time.RFC3339Nano))
	for line := range bytes.Lines(s.Metrics) {
		name := bytes.TrimPrefix(line, []byte("# TYPE "))
		for _, prefix := range Prefixes {
			if bytes.HasPrefix(name, []byte(prefix)) {
				b.Write(line)
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// ReadRecording reads the scrapes of a recording, in the order of time. A name
// that ends in .gz is of a compressed one.
func ReadRecording(path string) ([]Scrape, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	scrapes, err := readScrapes(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return scrapes, nil
}

func readScrapes(r io.Reader) ([]Scrape, error) {
	var scrapes []Scrape
	reader := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		} else if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if at, ok := bytes.CutPrefix(line, []byte(scrapeMark)); ok {
			t, err := time.Parse(time.RFC3339Nano, string(bytes.TrimSpace(at)))
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			if len(scrapes) > 0 && !t.After(scrapes[len(scrapes)-1].At) {
				return nil, fmt.Errorf("line %d: it is not after the scrape before", n)
			}
			scrapes = append(scrapes, Scrape{At: t})
			continue
		}
		if len(scrapes) == 0 {
			return nil, fmt.Errorf("line %d: a recording begins with a line %sTIME", n, scrapeMark)
		}
		last := &scrapes[len(scrapes)-1]
		last.Metrics = append(last.Metrics, line...)
	}
	if len(scrapes) < 2 {
		return nil, fmt.Errorf("there are %d scrapes in it, and it takes two to see a rate", len(scrapes))
	}
	return scrapes, nil
}
