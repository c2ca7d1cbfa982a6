// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/cri"
	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
	"github.com/kubelet-backoff/kubelet-backoff/agent/restartrules"
	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/poddir"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/printer"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// podRun is the state that all pods of a run share.
type podRun struct {
	runOptions
	root    *poddir.Root
	gates   restartpod.Gates
	printer *printer.Printer
	// unread is closed when nobody reads the output anymore. It is nil for a terminal.
	unread <-chan struct{}
	issues issueWriter
	// containerBackOff and podBackOff are the back-offs of the node.
	containerBackOff, podBackOff *backoff.Backoff
	// restartAt is nil if annotations do not end waits.
	restartAt *asked.Restarts
	// limits is nil if annotations do not end pods.
	limits *asked.Limits
	// curves is nil if annotations give containers no other back-off.
	curves *asked.Curves
	// tooMany receives the name of a container that has reached --max-restarts.
	tooMany chan string
}

func newPodRun(o runOptions, gate featuregate.FeatureGate, curve backoff.Curve, root *poddir.Root, pods []podManifest, stdout io.Writer, issues issueWriter) *podRun {
	clock := clock.RealClock{}
	var list []*v1.Pod
	for _, p := range pods {
		list = append(list, p.pod)
	}
	r := &podRun{
		runOptions: o, root: root, gates: restartGates(gate), issues: issues, tooMany: make(chan string, 1),
		printer: printer.New(stdout, o.output, list, terminalSize(stdout), clock), unread: unread(stdout),
	}
	r.containerBackOff, r.podBackOff = agent.NewBackOffs(clock, curve)
	if asks(gate, config.KubeletRestartAtAnnotation) {
		r.restartAt = &asked.Restarts{}
	}
	if asks(gate, config.KubeletMaxRestartsAnnotation) {
		r.limits = &asked.Limits{}
	}
	if asks(gate, config.KubeletRestartBackOffAnnotation) {
		r.curves = asked.NewCurves(curve)
		r.containerBackOff.RulesOf = r.curves.Rules
	}
	return r
}

// unread returns a channel that is closed when nobody reads w anymore. It is nil for a terminal.
func unread(w io.Writer) <-chan struct{} {
	if f, ok := w.(*os.File); ok && !term.IsTerminal(int(f.Fd())) {
		return readerGone(f)
	}
	return nil
}

// terminalSize returns a function that returns the size of the terminal, or nil if w is
// not a terminal.
func terminalSize(w io.Writer) func() (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() (columns, rows int) {
		columns, rows, _ = term.GetSize(int(f.Fd())) // After an error the printer uses a default.
		return columns, rows
	}
}

// run runs the pods until they have ended or have been stopped.
func (r *podRun) run(pods []podManifest) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it.
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	// Without a handler, SIGPIPE would end the process after a write to a closed stdout.
	// The printer handles the error of that write. The signal itself is ignored, because
	// writes to containers and probes cause it too.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var timeout <-chan time.Time
	if r.timeout > 0 {
		timeout = time.After(r.timeout)
	}

	var wg sync.WaitGroup
	phases, errs := make([]v1.PodPhase, len(pods)), make([]error, len(pods))
	for i, p := range pods {
		wg.Go(func() {
			phases[i], errs[i] = r.runPod(ctx, p.pod, p.files)
			if errs[i] != nil && len(pods) > 1 {
				// The other pods may run for a long time.
				r.printer.Warn(p.pod, "", "CannotRun", errs[i].Error())
			}
		})
	}
	written := make(chan error, 1)
	go func() {
		wg.Wait()
		written <- r.printer.Close(func(pod *v1.Pod) string { return filepath.Join(r.root.Path(pod), process.LogsDir) })
	}()
	// stopped is the exit status of the first reason to stop the pods. signalled is the
	// time of the first signal.
	stopped := exitSucceeded
	var signalled time.Time
	var late <-chan time.Time
	stop := func(status int, reason, message string) {
		if r.printer.Warn(nil, "", reason, message); stopped == exitSucceeded {
			stopped, late = status, time.After(lateStop)
		}
		cancel()
	}
	unread := r.unread
	for {
		select {
		case err := <-written:
			return r.result(phases, errors.Join(errs...), err, stopped)
		case <-unread:
			unread = nil
			cancel()
		case <-late:
			for _, p := range pods {
				if grace := time.Duration(*p.pod.Spec.TerminationGracePeriodSeconds) * time.Second; grace > lateStop {
					r.printer.WarnRunning(p.pod, fmt.Sprintf("still runs %v after it was told to stop: a first process that ignores SIGTERM is killed when its grace period of %v ends", lateStop, grace))
				}
			}
		case <-timeout:
			stop(exitTimeout, "Timeout", fmt.Sprintf("--timeout %s is over%s", r.timeout, stopping))
		case what := <-r.tooMany:
			stop(exitMaxRestarts, "MaxRestarts", fmt.Sprintf("%s has reached --max-restarts %d%s", what, r.maxRestarts, stopping))
		case s := <-signals:
			status := 128 + int(s.(syscall.Signal)) // As a shell reports it.
			switch {
			case signalled.IsZero():
				signalled = time.Now()
				again := "; a second signal kills the remaining processes"
				if r.endpoint != "" {
					again = "; after a second signal the remaining containers keep running"
				}
				stop(status, "Stopping", s.String()+stopping+again)
			case s == os.Interrupt || s != syscall.SIGHUP && time.Since(signalled) > sameSignal:
				return exitError(status) // All processes of the pods end with this one.
			}
		}
	}
}

const stopping = ": stopping the pods within their grace periods"

// lateStop is the time after which a container is late to stop, and a note says why nothing
// happens.
const lateStop = 2 * time.Second

// sameSignal is the time within which a second SIGTERM counts as the first one, because
// timeout(1) signals its child and then the group of the child. A second SIGHUP always
// does, because a closing terminal may send two at any time.
const sameSignal = 500 * time.Millisecond

// result writes the errors and returns the error with the exit status.
func (r *podRun) result(phases []v1.PodPhase, err, outputErr error, stopped int) error {
	if err != nil {
		r.issues.error(err.Error())
	}
	unread := errors.Is(outputErr, syscall.EPIPE)
	if outputErr != nil && !unread {
		r.issues.error("the output is not complete: " + outputErr.Error())
	}
	switch {
	case unread: // As of a process that SIGPIPE ends, such as another command before head.
		return exitError(exitUnread)
	case err != nil, slices.Contains(phases, v1.PodFailed):
		return exitError(exitFailed)
	case stopped != exitSucceeded && slices.Contains(phases, v1.PodRunning):
		return exitError(stopped)
	case outputErr != nil:
		return exitError(exitFailed)
	}
	return nil
}

// reachedMaxRestarts reports whether --max-restarts forbids the next restart of a
// container that has exited. It must be called with each status before the agent acts on
// it.
func (r *podRun) reachedMaxRestarts(pod *v1.Pod, s agent.Status) bool {
	if r.maxRestarts < 0 || s.Terminating {
		return false
	}
	containers := restartrules.Containers(&pod.Spec, r.gates)
	for i, c := range s.Containers {
		t := c.State.Terminated
		again := t != nil && r.gates.OnExit(&containers[i], t.ExitCode) != ""
		if c.Restarts.Count > r.maxRestarts || again && c.Restarts.Count == r.maxRestarts {
			select {
			case r.tooMany <- "container " + c.Name + " of pod " + pod.Namespace + "/" + pod.Name:
			default:
			}
			return true
		}
	}
	return false
}

// runPod runs a pod until it has ended or, after ctx is done, has been stopped.
func (r *podRun) runPod(ctx context.Context, pod *v1.Pod, files podspec.Files) (v1.PodPhase, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, unlock, err := r.root.Make(pod)
	if err != nil {
		return "", fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer unlock()
	o := agent.Options{
		Pod: pod, Gates: r.gates, ContainerBackOff: r.containerBackOff, PodBackOff: r.podBackOff, RestartAt: r.restartAt, MaxRestarts: r.limits, Curves: r.curves, GRPC: checkHealth(nil),
		Recorder: r.printer.Recorder(pod), Report: func(s agent.Status) {
			if r.printer.Status(pod, s); ctx.Err() == nil && r.reachedMaxRestarts(pod, s) {
				cancel()
			}
		},
	}
	if r.endpoint == "" {
		runtime, err := process.New(pod, dir, r.process, r.printer.Output(pod), func(container, message string) {
			r.printer.Warn(pod, container, "IncompleteLog", message)
		})
		if err != nil {
			return "", err
		}
		o.Runtime, o.GRPC = runtime, checkHealth(runtime.Dial)
	} else {
		runtime, err := cri.New(ctx, r.endpoint, pod, dir, r.printer.Output(pod))
		if err != nil {
			if ctx.Err() != nil {
				return v1.PodRunning, nil // The pod was stopped before it started.
			}
			return "", err
		}
		defer runtime.Close()
		o.Runtime, o.StatusFile = runtime, filepath.Join(dir, cri.StatusFile)
	}
	if err := files.Write(dir); err != nil {
		return "", err
	}
	r.root.RemoveOthers(pod)
	a, err := agent.New(o)
	if err != nil {
		return "", err
	}
	return a.Run(ctx), nil
}

// confine adds an issue for each field of a pod that the process runtime cannot provide,
// and an error if pods cannot be confined. With --unconfined the fields that need a
// sandbox are warnings.
func (r *report) confine(pods []podManifest, o process.Options) {
	for _, p := range pods {
		for _, err := range process.Validate(p.pod, o) {
			switch {
			case err.Type == field.ErrorTypeForbidden && o.Unconfined:
				r.Warnings = append(r.Warnings, newIssue(p.file, p.object, err.Field, err.Detail))
				continue
			case err.Type == field.ErrorTypeForbidden && err.Field == "spec.hostNetwork":
				err.Detail += " (--host-network gives it the network of the machine)"
			case err.Type == field.ErrorTypeForbidden:
				err.Detail += " (--unconfined runs the pod without it)"
			}
			r.Errors = append(r.Errors, newErrorIssue(p.file, p.object, err))
		}
	}
	if !o.Unconfined && len(pods) > 0 && len(r.Errors) == 0 {
		if err := process.CanConfine(); err != nil {
			r.Errors = append(r.Errors, newIssue("", "", "sandbox", err.Error()+" (--unconfined runs the pods without a sandbox: they can do whatever their user can do)"))
		}
	}
}
