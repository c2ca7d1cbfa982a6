// SPDX-License-Identifier: Apache-2.0

// Command record scrapes the metrics of a kubelet into a file that draw reads:
//
//	go run -C test/deploy ./record --url http://127.0.0.1:10255/metrics --every 1s --for 5m -o "$PWD/recording.prom"
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/deploy"
)

func main() {
	var r recorder
	flag.StringVar(&r.url, "url", "", "the URL of the metrics")
	flag.DurationVar(&r.every, "every", time.Second, "the time between two scrapes")
	flag.DurationVar(&r.duration, "for", 5*time.Minute, "how long; Ctrl-C ends it before")
	flag.StringVar(&r.tokenFile, "token-file", "", "a file with the bearer token; it is read for each scrape")
	insecure := flag.Bool("insecure-skip-tls-verify", false, "take any certificate")
	output := flag.String("o", "", "the file to write; a name that ends in .gz is of a compressed one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if r.url == "" || *output == "" || flag.NArg() > 0 || r.every <= 0 {
		fmt.Fprintln(os.Stderr, "usage: record --url URL -o FILE [--every 1s] [--for 5m] [--token-file FILE] [--insecure-skip-tls-verify]")
		os.Exit(2)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: *insecure} // A flag asks for it.
	r.client = &http.Client{Transport: transport, Timeout: max(r.every, 10*time.Second)}
	if err := record(ctx, &r, *output); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Printf("%d scrapes in %s, %d failed\n", r.scrapes, *output, r.failed)
}

type recorder struct {
	url, tokenFile  string
	every, duration time.Duration
	client          *http.Client
	scrapes, failed int
}

func record(ctx context.Context, r *recorder, path string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var w io.Writer = f
	if strings.HasSuffix(path, ".gz") {
		z := gzip.NewWriter(f)
		defer func() { err = errors.Join(err, z.Close()) }()
		w = z
	}
	return r.run(ctx, w)
}

// run scrapes until the time is over or the context is cancelled. A kubelet that
// is away for a while is a gap. The first scrape must succeed.
func (r *recorder) run(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, r.duration)
	defer cancel()
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		metrics, err := r.scrape(ctx)
		switch {
		case err == nil:
			if err := deploy.WriteScrape(w, deploy.Scrape{At: time.Now(), Metrics: metrics}); err != nil {
				return err
			}
			r.scrapes++
		case ctx.Err() != nil:
		case r.scrapes == 0:
			return err
		default:
			r.failed++
			fmt.Fprintln(os.Stderr, "warning:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (r *recorder) scrape(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	if r.tokenFile != "" {
		token, err := os.ReadFile(r.tokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", r.url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, 64<<20))
}
