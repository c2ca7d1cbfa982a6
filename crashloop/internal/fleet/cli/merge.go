// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/report"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
)

// NewMerge returns the command merge.
func NewMerge() *cobra.Command {
	var o outputs
	cmd := &cobra.Command{
		Use:   "merge [-o FORMAT] [--html FILE] [--svg FILE] FILE ...",
		Short: "Add up the parts of a fleet that 'plan fleet --shard' simulated",
		Long: `Add up the parts of a fleet that 'crashloop plan fleet --shard' printed, and print
what a single run would print. Each part is needed exactly once, in any order. A file
may have several parts; "-" is stdin.

Exit status: 0 the plan was printed, 1 a part is missing or invalid, 2 wrong usage. With
1 and 2 no file is written.`,
		Example: `  for i in 0 1 2; do crashloop plan fleet --nodes 5000 --shard $i/3 > part$i.json; done
  crashloop plan merge part*.json --html report.html

  # the parts of the Job in deploy/plan
  kubectl logs --selector job-name=crashloop-plan --tail=-1 --max-log-requests 20 | crashloop plan merge -`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return errors.New("no FILE to merge: name the output of 'crashloop plan fleet --shard', or - for stdin")
			}
			if err := o.check(files...); err != nil {
				return err
			}
			var parts []*fleet.Result
			for _, file := range files {
				found, err := readParts(file, cmd.InOrStdin())
				if err != nil {
					return &Failure{err}
				}
				parts = append(parts, found...)
			}
			result, err := fleet.Merge(parts)
			if err != nil {
				return &Failure{err}
			}
			if err := report.CheckStep(o.step, result.Options.For); err != nil {
				return err
			}
			return o.write(cmd.OutOrStdout(), result, nil)
		},
	}
	o.flags(cmd)
	return cmd
}

// mostBytes is the maximum size of an input.
const mostBytes = 1 << 30

// readParts reads all parts in a file.
func readParts(file string, stdin io.Reader) (parts []*fleet.Result, err error) {
	name, r := file, stdin
	if file == "-" {
		name = "stdin"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, text.Reason(err))
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return nil, fmt.Errorf("%s: is a directory: name the files in it", file)
		}
		r = f
	}
	limited := &io.LimitedReader{R: r, N: mostBytes}
	decoder := json.NewDecoder(limited)
	for {
		var data json.RawMessage
		err := decoder.Decode(&data)
		switch {
		case errors.Is(err, io.EOF) && len(parts) > 0 && limited.N > 0:
			return parts, nil
		case limited.N == 0:
			return nil, fmt.Errorf("%s: more than %d MiB, which is the limit", name, mostBytes>>20)
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%s: is empty", name)
		case err != nil:
			return nil, fmt.Errorf("%s: part %d is not JSON: %w", name, len(parts)+1, text.Reason(err))
		}
		part, err := fleet.Decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: part %d: %w", name, len(parts)+1, err)
		}
		parts = append(parts, part)
	}
}
