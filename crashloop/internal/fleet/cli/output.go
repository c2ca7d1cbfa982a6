// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/report"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
)

// formats are those of the standard output.
var formats = []string{"csv", "json", "table"}

// outputs has the flags of the outputs.
type outputs struct {
	format    string
	step      time.Duration
	svg, html string
}

func (o *outputs) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	usage.Output(cmd, &o.format, formats)
	Duration(flags, &o.step, "step", 0, "the time from one row to the next (default about a dozen rows)")
	flags.StringVar(&o.svg, "svg", "", "write charts to this file, as SVG")
	flags.StringVar(&o.html, "html", "", "write a report to this file, a page that needs no other file and no network")
	usage.Name(cmd, map[string]string{"svg": "FILE", "html": "FILE"})
}

// drawing is an output file, and the function that returns its content.
type drawing struct {
	path string
	data func(*report.Report, []chart.Chart) ([]byte, error)
}

func (o *outputs) drawings() (list []drawing) {
	for _, d := range []drawing{
		{o.svg, func(_ *report.Report, charts []chart.Chart) ([]byte, error) { return chart.SVG(charts...), nil }},
		{o.html, (*report.Report).HTML},
	} {
		if d.path != "" {
			list = append(list, d)
		}
	}
	return list
}

// check returns an error if an output file cannot be written, or is also an input. It changes no
// file.
func (o *outputs) check(inputs ...string) error {
	seen := map[string]bool{}
	for _, d := range o.drawings() {
		if d.path == "-" {
			return errors.New("-: only -o writes to the standard output: name a file")
		}
		target, err := resolve(d.path)
		if err != nil {
			return &Failure{Err: err}
		}
		if seen[target] {
			return fmt.Errorf("%s: two outputs cannot be the same file", d.path)
		}
		seen[target] = true
		if special(target) {
			continue
		}
		if slices.ContainsFunc(inputs, func(input string) bool { return sameFile(input, target) }) {
			return fmt.Errorf("%s: is also an input: name another file", d.path)
		}
		temp, err := create(target)
		if err != nil {
			return &Failure{Err: fmt.Errorf("%s: %w", d.path, text.Reason(err))}
		}
		temp.Close()
		os.Remove(temp.Name())
	}
	return nil
}

// resolve returns the absolute path of a file without symbolic links. The file need not exist.
func resolve(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return filepath.Abs(path)
	case err != nil:
		return "", fmt.Errorf("%s: %w", path, text.Reason(err))
	case info.IsDir():
		return "", fmt.Errorf("%s: is a directory: name a file", path)
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil || special(target) {
		return path, nil // such as /dev/stdout, whose link may have no path as its target
	}
	return filepath.Abs(target)
}

// sameFile reports whether two paths name the same file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// special reports whether a path is not a regular file, such as a device, and must not be replaced.
func special(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular()
}

// create creates a temporary file in the directory of target. If target exists, it must be
// writable, and the new file gets its permissions.
func create(target string) (*os.File, error) {
	old, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		defer old.Close()
	}
	for i := 0; ; i++ {
		f, err := os.OpenFile(fmt.Sprintf("%s.%d.%d.tmp", target, os.Getpid(), i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil && old != nil {
			if info, err := old.Stat(); err == nil {
				_ = f.Chmod(info.Mode().Perm()) // some file systems have no permissions
			}
		}
		if !errors.Is(err, fs.ErrExist) || i == 100 {
			return f, err
		}
	}
}

// write writes the standard output and then all files. If an earlier step fails, it writes no file.
func (o *outputs) write(stdout io.Writer, result *fleet.Result, rec *fleet.Recommendation) error {
	r := report.New(result, rec, o.step)
	charts := report.Charts(result)
	output, err := map[string]func() ([]byte, error){
		"csv": r.CSV, "json": r.JSON, "table": func() ([]byte, error) { return r.Table(), nil },
	}[o.format]()
	if err != nil {
		return &Failure{Err: err}
	}
	drawings := o.drawings()
	files := make([][]byte, len(drawings))
	for i, d := range drawings {
		if files[i], err = d.data(r, charts); err != nil {
			return &Failure{Err: fmt.Errorf("%s: %w", d.path, err)}
		}
	}
	// The reader of the output may be slow or close it. So this comes before the files.
	if err := writeAll(stdout, output); err != nil {
		return err
	}
	if rec != nil && rec.Best == nil {
		return &Failure{Err: errors.New("no maximum is within the budget")}
	}
	return replaceAll(drawings, files)
}

// replaceAll replaces the files of drawings after it has written all temporary files. Devices and
// pipes come first, because opening a pipe blocks until it has a reader.
func replaceAll(drawings []drawing, files [][]byte) error {
	regular := map[int]string{} // the targets of drawings
	for i, d := range drawings {
		target, err := resolve(d.path)
		if err != nil {
			return &Failure{Err: err}
		}
		if !special(target) {
			regular[i] = target
		} else if err := os.WriteFile(target, files[i], 0); err != nil {
			return &Failure{Err: fmt.Errorf("%s: %w", d.path, text.Reason(err))}
		}
	}
	temps := map[int]string{}
	defer func() {
		for _, name := range temps {
			os.Remove(name)
		}
	}()
	order := slices.Sorted(maps.Keys(regular))
	for _, i := range order {
		temp, err := create(regular[i])
		if err == nil {
			temps[i] = temp.Name()
			_, err = temp.Write(files[i])
			err = errors.Join(err, temp.Close())
		}
		if err != nil {
			return &Failure{Err: fmt.Errorf("%s: %w", drawings[i].path, text.Reason(err))}
		}
	}
	for _, i := range order {
		if err := os.Rename(temps[i], regular[i]); err != nil {
			return &Failure{Err: fmt.Errorf("%s: %w", drawings[i].path, text.Reason(err))}
		}
	}
	return nil
}

func writeAll(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return &Failure{Err: err}
	}
	return nil
}
