// SPDX-License-Identifier: Apache-2.0

// Command node measures on a real node how punctually a kubelet restarts a
// crash-looping container, and compares two kubelets.
//
//	go run . timing --stock KUBELET --ours KUBELET --apiserver KUBE_APISERVER
//	go run . run --kubelet KUBELET --scenario max1s [--apiserver KUBE_APISERVER]
//
// Its tests restart pods in place on such a node: see TestNode.
//
// It needs root, runc and etcd; containerd is built from its module. All state
// lies below the work folder, and nothing listens outside loopback.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var began = time.Now()

// progress writes a line that says what is being done, to standard error.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

var errCriteria = errors.New("not every criterion holds")

const usage = `usage:
  node timing --stock KUBELET --ours KUBELET --apiserver KUBE_APISERVER
              [--only LIST] [--seconds N] [--work DIR] [--keep] [-o text|json]
  node run --kubelet KUBELET --scenario NAME [--apiserver KUBE_APISERVER]
              [--seconds N] [--work DIR] [--keep] [-o text|json]
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	var err error
	switch name := os.Args[1]; name {
	case nodeCommand:
		err = nodeMain(os.Stdin, os.Stdout)
	case "timing", "run":
		ctx, stop := interruptible()
		err = execute(ctx, name, os.Args[2:], os.Stdout)
		stop()
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// interruptible returns a context that ends at Ctrl-C and SIGTERM, and when a
// "go run" that started the harness is gone: it does not pass SIGTERM on.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, fail := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	parent := os.Getppid()
	name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(parent), "comm"))
	goRun := strings.TrimSpace(string(name)) == "go"
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case s := <-signals:
				progress("%v: cleaning up", s)
				fail(fmt.Errorf("interrupted by %v", s))
			case <-tick.C:
				if goRun && os.Getppid() != parent && ctx.Err() == nil {
					progress("go run has ended: cleaning up")
					fail(errors.New("go run has ended"))
				}
			}
		}
	}()
	return ctx, func() { fail(nil) }
}

// options are the flags of both commands.
type options struct {
	stock, ours, kubelet, apiserver, only, work, format string
	seconds                                             int
	keep                                                bool
}

func execute(ctx context.Context, command string, args []string, out io.Writer) (err error) {
	var o options
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.StringVar(&o.apiserver, "apiserver", "", "the kube-apiserver `binary`; the api scenarios need it")
	f.StringVar(&o.work, "work", "", "the `folder` for binaries, state and logs (default: _output/node of the repository)")
	f.IntVar(&o.seconds, "seconds", 0, "measure for `N` seconds instead of the scenario's own time")
	f.BoolVar(&o.keep, "keep", false, "keep the logs also when nothing fails")
	f.StringVar(&o.format, "o", "text", "the output `format`: text or json")
	if command == "timing" {
		f.StringVar(&o.stock, "stock", "", "the unpatched kubelet `binary`")
		f.StringVar(&o.ours, "ours", "", "the patched kubelet `binary`")
		f.StringVar(&o.only, "only", "", "run only these scenarios, a comma-separated `list` (default: all)")
	} else {
		f.StringVar(&o.kubelet, "kubelet", "", "the kubelet `binary`")
		f.StringVar(&o.only, "scenario", "max1s", "the `scenario`, or a comma-separated list")
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%s takes no argument, but got %q", command, f.Arg(0))
	}
	if o.format != "text" && o.format != "json" {
		return fmt.Errorf("-o %q: the formats are text and json", o.format)
	}
	if o.seconds < 0 {
		return fmt.Errorf("--seconds %d: must not be negative", o.seconds)
	}
	selected, err := selectScenarios(o.only, time.Duration(o.seconds)*time.Second)
	if err != nil {
		return err
	}
	source, err := sourceFolder()
	if err != nil {
		return err
	}
	if o.work == "" {
		o.work = filepath.Join(source, "..", "..", "_output", "node")
	}
	kubelets := []binary{{"--kubelet", &o.kubelet}}
	if command == "timing" {
		kubelets = []binary{{"--stock", &o.stock}, {"--ours", &o.ours}}
	}
	needed, api := kubelets, slices.ContainsFunc(selected, func(s Scenario) bool { return s.API })
	if api {
		needed = append(needed, binary{"--apiserver", &o.apiserver})
	}
	etcd, err := prerequisites(needed, api)
	if err != nil {
		return err
	}
	h, err := newHarness(ctx, o.work)
	if err != nil {
		return err
	}
	h.keep, h.etcd, h.apiserver = o.keep, etcd, o.apiserver
	if err := h.build(ctx, source); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, h.check(os.Stderr))
		progress("done after %v", time.Since(began).Round(time.Second))
	}()
	if command == "timing" {
		return h.timing(ctx, o, selected, out)
	}
	return h.single(ctx, o, selected, out)
}

// build builds what nodes need besides the kubernetes programs.
func (h *harness) build(ctx context.Context, source string) error {
	if err := buildContainerd(ctx, source, h.bin); err != nil {
		return cause(ctx, err)
	}
	return cause(ctx, buildImages(ctx, source, h.bin))
}

// timing compares two kubelets. Each scenario is run with one and at once with
// the other, so that both meet the machine in much the same state.
func (h *harness) timing(ctx context.Context, o options, selected []Scenario, out io.Writer) error {
	var all []Comparison
	for i, s := range selected {
		progress("scenario %d of %d, %s: %v", i+1, len(selected), s.Name, s)
		stock, err := h.figures(ctx, s.forStock(), "stock", o.stock)
		if err != nil {
			return err
		}
		ours, err := h.figures(ctx, s, "ours", o.ours)
		if err != nil {
			return err
		}
		c := compare(s, stock, ours)
		all = append(all, c)
		if o.format == "text" {
			printComparison(out, c)
		}
	}
	if o.format == "json" {
		if err := printJSON(out, all); err != nil {
			return err
		}
	} else {
		printVerdict(out, all)
	}
	if !passed(all) {
		return errCriteria
	}
	return nil
}

// single measures one kubelet.
func (h *harness) single(ctx context.Context, o options, selected []Scenario, out io.Writer) error {
	type result struct {
		Scenario Scenario `json:"scenario"`
		Figures  Figures  `json:"figures"`
	}
	var all []result
	for _, s := range selected {
		f, err := h.figures(ctx, s, "kubelet", o.kubelet)
		if err != nil {
			return err
		}
		all = append(all, result{s, f})
		if o.format == "text" {
			printFigures(out, s, f)
		}
	}
	if o.format == "json" {
		return printJSON(out, all)
	}
	return nil
}

func (h *harness) figures(ctx context.Context, s Scenario, label, kubelet string) (Figures, error) {
	run, err := h.run(ctx, s, label, kubelet)
	if err != nil {
		return Figures{}, err
	}
	f, err := measure(run, s)
	if err != nil {
		return Figures{}, fmt.Errorf("%s, %s: %w", s.Name, label, err)
	}
	progress("%s, %s: %s", s.Name, label, f.summary(s))
	return f, nil
}

// cause prefers why a context ended to what came of it.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// sourceFolder returns the folder of this module, which is where the images'
// programs and containerd's version are.
func sourceFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for _, name := range []string{"containerd/go.mod", "images/crasher/main.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%s is not the folder test/node of the repository (%w); use: go run -C test/node . timing …", dir, err)
		}
	}
	return dir, nil
}

// binary is a flag that names a program.
type binary struct {
	flag string
	path *string
}

// prerequisites makes the paths absolute and returns where etcd is, if it is
// needed. It names everything that is missing at once.
func prerequisites(needed []binary, api bool) (etcd string, err error) {
	var missing []string
	miss := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	for _, b := range needed {
		if *b.path == "" {
			miss("%s: not given", b.flag)
			continue
		}
		abs, err := filepath.Abs(*b.path)
		if err != nil {
			return "", err
		}
		*b.path = abs
		if info, err := os.Stat(abs); err != nil {
			miss("%s: %v", b.flag, err)
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			miss("%s %s: not an executable file", b.flag, abs)
		}
	}
	if os.Geteuid() != 0 {
		miss("root: a node starts containers; run this as root")
	}
	program := func(name, pkg string) string {
		path, err := exec.LookPath(name)
		if err != nil {
			miss("%s: not on PATH (Debian package %s)", name, pkg)
		}
		return path
	}
	program("go", "golang-go")
	program("runc", "runc")
	if api {
		etcd = program("etcd", "etcd-server")
	}
	if all, err := mounts(); err != nil {
		return "", err
	} else if !hasCgroups(all) {
		miss("cgroups: no cgroup file system is mounted (Debian package cgroupfs-mount, or systemd)")
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("this is missing:\n  %s", strings.Join(missing, "\n  "))
	}
	return etcd, nil
}

func hasCgroups(all []mount) bool {
	for _, m := range all {
		if m.fstype == "cgroup" || m.fstype == "cgroup2" {
			return true
		}
	}
	return false
}
