// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// maxMetrics is how many bytes of metrics are read. Those of a kubelet with a
// thousand containers are a hundredth of it.
const maxMetrics = 64 << 20

// maxToken is how many bytes a file with a token may have.
const maxToken = 1 << 20

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
		Use:   "status [--metrics URL|FILE|-] [--token-file FILE] [--insecure-skip-tls-verify] [--timeout DURATION] [-o FORMAT]",
		Short: "Print what waits on a node and how late its restarts are, from its kubelet's metrics",
		Long: `Print what the metrics of a kubelet of this project say of restarts: how many
containers wait in CrashLoopBackOff, how many restarts there were and after what
delays, how late they came, and how in-place restarts of pods went.

The metrics are read from standard input, a file or an http or https URL. All
but the number of waiting containers and of keys count from the start of the
kubelet.

P50 and P99 are made of the buckets of a histogram, as histogram_quantile of
Prometheus makes them: by linear interpolation. MAX is the bound of the last
bucket that has anything in it.

Exit status: 0 the metrics were read; 1 they are not those of such a kubelet, or
not readable; 2 wrong usage.`,
		Example: `  # a node of the cluster
  kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | crashloop status

  # straight from a kubelet
  kubectl create token prometheus -n monitoring > token
  crashloop status --metrics https://NODE:10250/metrics --token-file token --insecure-skip-tls-verify

  # for a script
  crashloop status --metrics metrics.txt -o json`,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := statusWriters[o.output]
			if !ok {
				return unknownFormat(o.output, statusOutputFormats())
			}
			if err := o.validate(cmd.InOrStdin()); err != nil {
				return err
			}
			r, err := status(cmd.Context(), o, cmd.InOrStdin())
			if err == nil {
				err = write(cmd.OutOrStdout(), r)
			}
			if err != nil {
				newIssueWriter(cmd.ErrOrStderr(), o.output).error(err.Error())
				return exitError(exitFailed)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.metrics, "metrics", stdinFile, "the metrics in the Prometheus text format: a file, an http or https URL, or - for stdin")
	flags.StringVar(&o.tokenFile, "token-file", "", "a file with the bearer token for an https URL")
	flags.BoolVar(&o.insecure, "insecure-skip-tls-verify", false, "take any certificate from an https URL; a kubelet's own is often self-signed\nWhoever is on the way can read the token then")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long a URL may take")
	addOutputFlag(cmd, &o.output, statusOutputFormats())
	namePlaceholders(cmd, map[string]string{"metrics": "URL|FILE|-", "token-file": "FILE", "timeout": "DURATION"})
	must(cmd.MarkFlagFilename("metrics"))
	must(cmd.MarkFlagFilename("token-file"))
	return cmd
}

func statusOutputFormats() []string { return slices.Sorted(maps.Keys(statusWriters)) }

// validate returns an error of usage.
func (o *statusOptions) validate(stdin io.Reader) error {
	u := o.url()
	switch {
	case o.metrics == "":
		return errors.New("--metrics is empty: name a URL or a file, or - for stdin")
	case u != nil && u.Host == "":
		return fmt.Errorf("--metrics %q names no host: https://NODE:10250/metrics is the form", o.metrics)
	case u == nil && strings.Contains(o.metrics, "://"):
		return fmt.Errorf("--metrics %q is neither a file nor an http or https URL", o.metrics)
	case o.tokenFile != "" && (u == nil || u.Scheme != "https"):
		return errors.New("--token-file is for an https URL: a token is sent to nothing else")
	case o.insecure && (u == nil || u.Scheme != "https"):
		return errors.New("--insecure-skip-tls-verify is for an https URL")
	case o.timeout <= 0:
		return fmt.Errorf("--timeout %s is not more than 0", o.timeout)
	}
	if f, ok := stdin.(*os.File); ok && o.metrics == stdinFile && term.IsTerminal(int(f.Fd())) {
		return errors.New("the metrics are read from stdin, which is a terminal: name a file or a URL with --metrics, " +
			"or pipe them in: kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | crashloop status")
	}
	return nil
}

// url returns the http or https URL of the metrics, or nil if they are not at one.
func (o *statusOptions) url() *url.URL {
	u, err := url.Parse(o.metrics)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil
	}
	return u
}

// status reads the metrics and says what is in them. Its errors name the source.
func status(ctx context.Context, o statusOptions, stdin io.Reader) (*statusReport, error) {
	source := manifestName(o.metrics)
	var data []byte
	var err error
	switch u := o.url(); {
	case u != nil:
		source = u.Redacted()
		data, err = fetchMetrics(ctx, o, u)
	default:
		data, err = readFile(o.metrics, stdin, maxMetrics)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	r, err := newStatusReport(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	r.Source = source
	return r, nil
}

// fetchMetrics gets the metrics from a URL.
func fetchMetrics(ctx context.Context, o statusOptions, u *url.URL) ([]byte, error) {
	if ctx == nil {
		ctx = context.Background() // Nothing has given cobra one.
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	request.Header.Set("User-Agent", "crashloop")
	if o.tokenFile != "" {
		token, err := readToken(o.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file %s: %w", o.tokenFile, err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: o.insecure} // A flag asks for it.
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport: transport,
		Timeout:   o.timeout,
		// A kubelet redirects nobody, and the token is for it alone.
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

// readToken reads a bearer token. No error has any of it.
func readToken(path string) (string, error) {
	data, err := readFile(path, nil, maxToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", errors.New("there is no token in it")
	}
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return "", errors.New("what is in it is no token: that has no spaces and only ASCII")
		}
	}
	return token, nil
}

// explainHTTP returns an error of a request without the URL, which its caller
// adds, and with what would help.
func explainHTTP(err error, o statusOptions) error {
	if urlErr := (*url.Error)(nil); errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("no complete answer within %s (--timeout)", o.timeout)
	}
	if verifyErr := (*tls.CertificateVerificationError)(nil); errors.As(err, &verifyErr) {
		return fmt.Errorf("%w: --insecure-skip-tls-verify takes any certificate", err)
	}
	return err
}

// explainStatus says what an HTTP status other than 200 means. The server's own
// words are left out.
func explainStatus(code int, o statusOptions) string {
	text := strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
	switch {
	case code == http.StatusUnauthorized && o.tokenFile == "":
		return text + ": it takes a bearer token, see --token-file"
	case code == http.StatusUnauthorized:
		return text + ": the token of --token-file is not one that it knows, or has expired"
	case code == http.StatusForbidden && o.tokenFile == "":
		return text + ": it takes a bearer token, see --token-file, whose user may get nodes/metrics"
	case code == http.StatusForbidden:
		return text + ": the user of the token may not get nodes/metrics"
	case code == http.StatusNotFound:
		return text + ": a kubelet has its metrics at https://NODE:10250/metrics"
	case code >= 300 && code < 400:
		return text + ": a redirect is not followed, name the URL that it leads to"
	default:
		return text
	}
}
