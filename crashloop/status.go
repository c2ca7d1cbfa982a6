// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/status"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

// Limits in bytes. The metrics of a kubelet with a thousand containers have a sixth of
// maxMetrics.
const (
	maxMetrics = 4 << 20
	maxToken   = 1 << 20
)

type statusOptions struct {
	metrics   string
	tokenFile string
	insecure  bool
	timeout   time.Duration
	output    string
}

func newStatusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [--metrics URL|FILE|-] [--token-file FILE|-] [--insecure-skip-tls-verify] [--timeout DURATION] [-o FORMAT]",
		Short: "Print the restarts on a node from the metrics of its kubelet",
		Long: `Print the restarts on a node from the metrics of its kubelet, which must be one of
this project: the number of containers in CrashLoopBackOff, the number and the
delays of restarts, their lateness, and the in-place restarts of pods.

The metrics are read from stdin, a file, or an http or https URL. All numbers
count from the start of the kubelet, except the waiting containers and the keys.

P50 and P99 are estimates from the buckets of a histogram, by linear interpolation
as histogram_quantile of Prometheus does it. MAX is the upper bound of the highest
bucket that is not empty.

Exit status: 0 the metrics were read; 1 they could not be read, or do not come from
such a kubelet; 2 wrong usage.`,
		Example: `  # a node of the cluster
  kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | crashloop status

  # directly from a kubelet
  kubectl create token prometheus -n monitoring > token
  crashloop status --metrics https://NODE:10250/metrics --token-file token --insecure-skip-tls-verify

  # for a script
  crashloop status --metrics metrics.txt -o json`,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.InOrStdin()); err != nil {
				return err
			}
			data, source, err := readMetrics(cmd.Context(), o, cmd.InOrStdin())
			return failed(writeStatus(cmd.OutOrStdout(), o.output, data, source, err))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.metrics, "metrics", stdinFile, "the metrics in the Prometheus text format: a file, an http or https URL, or - for stdin")
	flags.StringVar(&o.tokenFile, "token-file", "", "a file with the bearer token for an https URL, or - for stdin")
	flags.BoolVar(&o.insecure, "insecure-skip-tls-verify", false, "accept any certificate of an https URL, because a kubelet's is often self-signed\nAn attacker in the network can then read the token")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "the time limit for reading a URL")
	usage.Output(cmd, &o.output, statusFormats)
	usage.Name(cmd, map[string]string{"metrics": "URL|FILE|-", "token-file": "FILE|-", "timeout": "DURATION"})
	cobra.CheckErr(cmd.MarkFlagFilename("metrics"))
	cobra.CheckErr(cmd.MarkFlagFilename("token-file"))
	return cmd
}

var statusFormats = []string{outputJSON, outputTable}

func (o *statusOptions) validate(stdin io.Reader) error {
	u := o.url()
	switch {
	case o.metrics == "":
		return errors.New("--metrics is empty: must be a URL, a file, or - for stdin")
	case u != nil && u.Host == "":
		return fmt.Errorf("--metrics %q has no host: use the form https://NODE:10250/metrics", o.metrics)
	case u == nil && strings.Contains(o.metrics, "://"):
		return fmt.Errorf("--metrics %q must be a file or an http or https URL", o.metrics)
	case o.tokenFile != "" && (u == nil || u.Scheme != "https"):
		return errors.New("--token-file needs an https URL: a token is only sent over https")
	case o.insecure && (u == nil || u.Scheme != "https"):
		return errors.New("--insecure-skip-tls-verify needs an https URL")
	case o.timeout <= 0:
		return fmt.Errorf("--timeout %s must be more than 0", o.timeout)
	}
	if f, ok := stdin.(*os.File); ok && o.metrics == stdinFile && term.IsTerminal(int(f.Fd())) {
		return errors.New("stdin is a terminal: name a file or a URL with --metrics, " +
			"or use a pipe: kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | crashloop status")
	}
	return nil
}

// url returns the http or https URL of the metrics, or nil for a file.
func (o *statusOptions) url() *url.URL {
	u, err := url.Parse(o.metrics)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil
	}
	return u
}

// readMetrics reads the metrics. It returns the name of their source.
func readMetrics(ctx context.Context, o statusOptions, stdin io.Reader) (data []byte, source string, err error) {
	if u := o.url(); u != nil {
		data, err = fetchMetrics(ctx, o, u, stdin)
		return data, u.Redacted(), err
	}
	data, err = readFile(o.metrics, stdin, maxMetrics)
	return data, manifestName(o.metrics), err
}

// writeStatus writes the report of metrics. err is the error of reading them. All errors
// name the source.
func writeStatus(w io.Writer, format string, data []byte, source string, err error) error {
	var r *status.Report
	if err == nil {
		r, err = status.New(data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	r.Source = source
	if format == outputJSON {
		return text.WriteJSON(w, "  ", r)
	}
	return status.WriteTable(w, r)
}

func fetchMetrics(ctx context.Context, o statusOptions, u *url.URL, stdin io.Reader) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	request.Header.Set("User-Agent", "crashloop")
	if o.tokenFile != "" {
		token, err := readToken(o.tokenFile, stdin)
		if err != nil {
			return nil, fmt.Errorf("--token-file %s: %w", o.tokenFile, err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: o.insecure}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport: transport,
		Timeout:   o.timeout,
		// A kubelet does not redirect, and no other server may get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, explainHTTP(err, o)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(explainStatus(response.StatusCode, o))
	}
	data, err := readAll(response.Body, maxMetrics)
	if err != nil {
		return nil, explainHTTP(err, o)
	}
	return data, nil
}

// readToken reads a bearer token. No error contains any part of it.
func readToken(path string, stdin io.Reader) (string, error) {
	data, err := readFile(path, stdin, maxToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", errors.New("the file is empty")
	}
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return "", errors.New("not a token: it must be printable ASCII without spaces")
		}
	}
	return token, nil
}

// explainHTTP removes the URL from an error, because the caller adds it, and adds what to
// do.
func explainHTTP(err error, o statusOptions) error {
	if urlErr := (*url.Error)(nil); errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("no complete response within %s (--timeout)", o.timeout)
	}
	if verifyErr := (*tls.CertificateVerificationError)(nil); errors.As(err, &verifyErr) {
		return fmt.Errorf("%w (--insecure-skip-tls-verify accepts any certificate)", err)
	}
	return err
}

// explainStatus describes an HTTP status other than 200 and what to do. It does not use
// the text of the server.
func explainStatus(code int, o statusOptions) string {
	text := strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
	switch {
	case code == http.StatusUnauthorized && o.tokenFile == "":
		return text + ": a bearer token is required, see --token-file"
	case code == http.StatusUnauthorized:
		return text + ": the token of --token-file is invalid or has expired"
	case code == http.StatusForbidden && o.tokenFile == "":
		return text + ": a bearer token of a user who may get nodes/metrics is required, see --token-file"
	case code == http.StatusForbidden:
		return text + ": the user of the token may not get nodes/metrics"
	case code == http.StatusNotFound:
		return text + ": the metrics of a kubelet are at https://NODE:10250/metrics"
	case code >= 300 && code < 400:
		return text + ": redirects are not followed: use the final URL"
	default:
		return text
	}
}
