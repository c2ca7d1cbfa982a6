// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/status"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

// maxMetrics is a limit in bytes. The metrics of a kubelet with a thousand containers have a
// sixth of it.
const maxMetrics = 4 << 20

func newStatusCommand() *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use:   "status [--metrics FILE|-] [-o FORMAT]",
		Short: "Print the restarts on a node from the metrics of its kubelet",
		Long: `Print the restarts on a node from the metrics of its kubelet, which must be one of
this project: the number of containers in CrashLoopBackOff, the number and the
delays of restarts, their lateness, and the in-place restarts of pods.

The metrics are read from stdin or from a file. All numbers count from the start of
the kubelet, except the waiting containers and the keys.

P50 and P99 are estimates from the buckets of a histogram, by linear interpolation
as histogram_quantile of Prometheus does it. MAX is the upper bound of the highest
bucket that is not empty.

Exit status: 0 the metrics were read; 1 they could not be read, or do not come from
such a kubelet; 2 wrong usage.`,
		Example: `  # a node of the cluster
  kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | crashloop status

  # directly from a kubelet, with the token of a user who may get nodes/metrics
  curl --insecure -H "Authorization: Bearer $TOKEN" https://NODE:10250/metrics | crashloop status

  # for a script
  crashloop status --metrics metrics.txt -o json`,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validateMetrics(file, cmd.InOrStdin()); err != nil {
				return err
			}
			data, err := readFile(file, cmd.InOrStdin(), maxMetrics)
			return failed(writeStatus(cmd.OutOrStdout(), output, data, manifestName(file), err))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "metrics", stdinFile, "the metrics in the Prometheus text format: a file, or - for stdin")
	usage.Output(cmd, &output, statusFormats)
	usage.Name(cmd, map[string]string{"metrics": "FILE|-"})
	cobra.CheckErr(cmd.MarkFlagFilename("metrics"))
	return cmd
}

var statusFormats = []string{outputJSON, outputTable}

func validateMetrics(file string, stdin io.Reader) error {
	const pipe = "kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | crashloop status"
	switch {
	case file == "":
		return errors.New("--metrics is empty: must be a file, or - for stdin")
	case strings.Contains(file, "://"):
		return fmt.Errorf("--metrics %q must be a file: to read a URL, use a pipe such as %s", file, pipe)
	}
	if f, ok := stdin.(*os.File); ok && file == stdinFile && term.IsTerminal(int(f.Fd())) {
		return errors.New("stdin is a terminal: name a file with --metrics, or use a pipe: " + pipe)
	}
	return nil
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
