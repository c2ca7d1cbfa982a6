// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/cri"
	"github.com/kubelet-backoff/kubelet-backoff/agent/manifest"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

type runOptions struct {
	configOptions
	manifestFlags
	commands []string
	endpoint string
	// unconfined is for pods without namespaces of their own.
	unconfined bool
	rootDir    string
	output     string
	// timeout is 0 and maxRestarts negative without a limit.
	timeout     time.Duration
	maxRestarts int
}

func newRunCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [--config FILE] [--config-dir DIR] [--feature-gates GATES] [--runtime-endpoint URL] [--unconfined] [--root-dir DIR] [--timeout DURATION] [--max-restarts N] [--command NAME=COMMAND] [-o FORMAT] [-f FILE|DIR|-] [-R] MANIFEST ...",
		Short: "Run pods on this machine, with the kubelet's restart behaviour",
		Long: `Run the pods of the manifests until they have ended or Ctrl-C is pressed, as a
kubelet of this project does: the order of init containers, sidecars and
containers, restart policies and rules, back-off, restarts of the whole pod,
hooks, grace periods, startup and liveness probes. A Deployment, StatefulSet,
DaemonSet, ReplicaSet, ReplicationController, Job, CronJob or PodTemplate is run
as one pod. ConfigMaps and Secrets among the manifests are real, others are
empty, with a warning each; a volume of a cluster is an empty folder.

Without --runtime-endpoint the containers are processes on this machine. They need
no root and no image: a container's command is one of this machine, run as its
caller or as securityContext says, in the present folder without a workingDir, and
with no more of the environment than PATH and HOME. Each pod has namespaces of its
own: its containers see their own processes alone, their volumes at mountPath, a
/tmp of their own, and all other files of this machine read-only. The network is
the machine's. All processes end with crashloop, however that ends. Where
namespaces cannot be had, that is said, and a pod that has no volumes and asks for
nothing else of that kind runs without them; --unconfined runs any pod so, with
all that its caller may do to this machine.

With --runtime-endpoint the containers are those of a CRI runtime, such as
containerd, that no kubelet uses: it would end them. If crashloop is killed they
run on; the next run of the same manifest goes on with them.

The back-off is that of a kubelet with the same --config, --config-dir and
--feature-gates ('crashloop check' prints it). A start that fails after something
was created (create, run error) follows the same curve, the attempt being the
exit; where nothing was created, for instance as the image cannot be pulled, the
container is retried after 10 s, and the curve does not advance. Fields of a pod that have no
effect here are named in a warning; what would make another pod of it is an
error.

On a terminal there is a table of the containers below what happens and what
they write; elsewhere there are only lines. With -o json each event is an object
on a line of its own, warnings and errors are that on stderr, and the containers'
output is in their logs alone.

Exit status: 0 all pods succeeded; 1 one failed by itself, or cannot be run, or
the output cannot be written; 2 wrong usage; 3 a manifest or the configuration is
refused, and nothing was run; else, whatever phase that gave the pods, 4 stopped
by --max-restarts, 124 by --timeout, 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
At the first Ctrl-C the pods are stopped with their grace period, at the second
crashloop ends at once.`,
		Example: `  # what happens to this pod on a node with the default configuration
  crashloop run pod.yaml

  # with another curve, and restarts of the whole pod
  crashloop run --config kubelet.yaml --feature-gates RestartPodOnContainerExits=true pod.yaml

  # in containers, as root
  crashloop run --runtime-endpoint unix:///run/containerd/containerd.sock pod.yaml`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeManifests,
		RunE: func(cmd *cobra.Command, manifests []string) error {
			if len(manifests)+len(o.files) == 0 {
				return errors.New("there is no MANIFEST to run: name a file, or - for stdin")
			}
			commands := map[string]string{}
			for _, text := range o.commands {
				name, command, ok := strings.Cut(text, "=")
				if !ok || name == "" || command == "" {
					return fmt.Errorf("--command %q: must be the name of a container, = and a command of the shell", text)
				}
				commands[name] = command
			}
			if !slices.Contains(runOutputFormats(), o.output) {
				return unknownFormat(o.output, runOutputFormats())
			}
			if o.timeout < 0 {
				return fmt.Errorf("--timeout %s is less than 0", o.timeout)
			}
			return runPods(o, o.list(manifests), commands, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addConfigFlags(cmd, &o.configOptions)
	flags := cmd.Flags()
	flags.StringVar(&o.endpoint, "runtime-endpoint", "", "a CRI runtime, as in the kubelet's containerRuntimeEndpoint: unix:///run/containerd/containerd.sock")
	flags.BoolVar(&o.unconfined, "unconfined", false, "run containers as processes without namespaces: no volumes, and what they write is written on this machine")
	flags.StringVar(&o.rootDir, "root-dir", "", "the folder for logs and volumes (default crashloop in the user's cache folder)")
	addManifestFlags(cmd, &o.manifestFlags)
	flags.StringArrayVar(&o.commands, "command", nil, "what the containers of this name run, with the shell, instead of their own command or their image's\nThe args of a container are its \"$@\"")
	flags.DurationVar(&o.timeout, "timeout", 0, "stop the pods after this time (default never)")
	flags.IntVar(&o.maxRestarts, "max-restarts", -1, "stop the pods instead of restarting a container once more than so often (default -1, never)")
	addOutputFlag(cmd, &o.output, runOutputFormats())
	namePlaceholders(cmd, map[string]string{"runtime-endpoint": "URL", "root-dir": "DIR", "timeout": "DURATION", "max-restarts": "N", "command": "NAME=COMMAND"})
	must(cmd.MarkFlagDirname("root-dir"))
	return cmd
}

// runPods runs the pods of the manifests. It has written its errors when it
// returns an exitError.
func runPods(o runOptions, manifests []string, commands map[string]string, stdin io.Reader, stdout, stderr io.Writer) error {
	// What libraries log has no place between the lines or above the table.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))

	issues := newIssueWriter(stderr, o.output)
	r := &report{}
	c := r.addConfig(o.configOptions)
	var pods []podManifest
	if c != nil {
		support := manifest.Process
		if o.endpoint != "" {
			support = cri.Support
		}
		pods = r.addPods(manifests, stdin, commands, restartGates(c.FeatureGate), support)
		r.addGatesNotHonoured(c.FeatureGate)
		if o.endpoint == "" {
			o.unconfined = r.confine(pods, o.unconfined)
		}
	}
	if !r.logIssues(issues) {
		return exitError(exitRefused)
	}
	root := o.rootDir
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			issues.error(fmt.Sprintf("there is no folder for logs and volumes (%v): set --root-dir", err))
			return exitError(exitFailed)
		}
		root = filepath.Join(cache, "crashloop")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	prune(root, maxCachedPods, maxCachedBytes)
	return newRun(o, c, root, pods, stdout, issues).run(pods)
}

// logIssues writes the warnings and errors, except warnings about image pulls, and reports
// whether there are no errors.
func (r *report) logIssues(issues issueWriter) bool {
	for _, w := range r.Warnings {
		if w.File != "" || w.Field != "" { // The others are about image pulls.
			issues.write("warning", w)
		}
	}
	for _, e := range r.Errors {
		issues.write("error", e)
	}
	return len(r.Errors) == 0
}

// addGatesNotHonoured warns of gates that are off and lead a kubelet back to
// upstream's behaviour, which is not to be had here.
func (r *report) addGatesNotHonoured(gates featuregate.FeatureGate) {
	for _, gate := range []featuregate.Feature{config.KubeletStrictCrashLoopBackOff, config.KubeletRestartAllContainersBackOff} {
		if !gates.Enabled(gate) {
			r.Warnings = append(r.Warnings, newIssue("", "", "featureGates", string(gate)+"=false is not honoured: crashloop run has only the behaviour with that gate on"))
		}
	}
}

// podRun is what all pods of a run share.
type podRun struct {
	root     string
	endpoint string
	// unconfined is for processes without namespaces.
	unconfined bool
	gates      restartpod.Gates
	// containerBackOff and podBackOff are those of the node.
	containerBackOff, podBackOff *backoff.Backoff
	printer                      *printer
	issues                       issueWriter
	timeout                      time.Duration
	maxRestarts                  int
	// tooMany gets what is restarted too often.
	tooMany chan string
}

func newRun(o runOptions, c *config.Config, root string, pods []podManifest, stdout io.Writer, issues issueWriter) *podRun {
	curve, clock := config.Resolve(c.Settings), clock.RealClock{}
	podCurve := curve.Curve
	podCurve.DelayFirst = false // The restart of a pod never waits the first time.
	var list []*v1.Pod
	for _, p := range pods {
		list = append(list, p.pod)
	}
	return &podRun{
		root: root, endpoint: o.endpoint, unconfined: o.unconfined, gates: restartGates(c.FeatureGate), issues: issues,
		timeout: o.timeout, maxRestarts: o.maxRestarts, tooMany: make(chan string, 1),
		containerBackOff: kuberuntime.NewBackOff(clock, curve.Curve), podBackOff: kuberuntime.NewBackOff(clock, podCurve),
		printer: newPrinter(stdout, o.output, list, terminalSize(stdout), clock),
	}
}

// terminalSize returns what tells the size of the terminal that w is, or nil if
// it is none.
func terminalSize(w io.Writer) func() (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() (columns, rows int) {
		columns, rows, _ = term.GetSize(int(f.Fd())) // The printer has a size for one that does not tell.
		return columns, rows
	}
}

// run runs the pods until they have ended or a signal comes.
func (r *podRun) run(pods []podManifest) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// SIGPIPE would end the process at the write to stdout that printer.unread is
	// for. It also comes for what goes to a container or a probe's connection.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	if !signal.Ignored(syscall.SIGHUP) { // As it is under nohup.
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	defer r.printer.stayBelow()()
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
				// The others may go on for ever.
				r.printer.warn(p.pod, "", "CannotRun", errs[i].Error())
			}
		})
	}
	ended, written := make(chan struct{}), make(chan error, 1)
	go func() {
		wg.Wait()
		close(ended)
	}()
	// stopped is the exit status of what stopped the pods first, and signalled when
	// a signal did or would have.
	stopped := exitSucceeded
	var signalled time.Time
	stop := func(status int, reason, message string) {
		if r.printer.warn(nil, "", reason, message); stopped == exitSucceeded {
			stopped = status
		}
		cancel()
	}
	unread := r.printer.unread
	for {
		select {
		case <-ended:
			ended = nil
			go func() {
				written <- r.printer.close(func(pod *v1.Pod) string { return filepath.Join(r.dir(pod), process.LogsDir) })
			}()
		case err := <-written:
			return r.result(phases, errors.Join(errs...), err, stopped)
		case <-unread:
			unread = nil
			cancel()
		case <-timeout:
			timeout = nil
			stop(exitTimeout, "Timeout", fmt.Sprintf("--timeout %s is over%s", r.timeout, stopping))
		case what := <-r.tooMany:
			stop(exitMaxRestarts, "MaxRestarts", fmt.Sprintf("%s was restarted --max-restarts %d times%s", what, r.maxRestarts, stopping))
		case s := <-signals:
			switch {
			case signalled.IsZero():
				signalled = time.Now()
				again := "; once more ends what is left at once"
				if r.endpoint != "" {
					again = "; once more leaves what is left running"
				}
				stop(exitStatus(s), "Stopping", s.String()+stopping+again)
			case s == os.Interrupt || s != syscall.SIGHUP && time.Since(signalled) > sameSignal:
				return exitError(exitStatus(s)) // And whatever depends on this process ends with it.
			}
		}
	}
}

const stopping = ": the pods are stopped within their grace periods"

// sameSignal is how soon after the first another SIGTERM comes that is no second
// wish: the command timeout signals its child and then the child's group. A
// terminal that closes may send two SIGHUPs at any time.
const sameSignal = 500 * time.Millisecond

// result tells the errors, and returns what the exit status is to be.
func (r *podRun) result(phases []v1.PodPhase, err, outputErr error, stopped int) error {
	if err != nil {
		r.issues.error(err.Error())
	}
	if outputErr != nil {
		r.issues.error("the output is not complete: " + outputErr.Error())
	}
	switch {
	case err != nil, slices.Contains(phases, v1.PodFailed):
		return exitError(exitFailed)
	case stopped != exitSucceeded && slices.Contains(phases, v1.PodRunning):
		return exitError(stopped)
	case outputErr != nil:
		return exitError(exitFailed)
	}
	return nil
}

// exitStatus is that of a process which a signal ended, as shells have it.
func exitStatus(s os.Signal) int {
	const signalled = 128
	if s, ok := s.(syscall.Signal); ok {
		return signalled + int(s)
	}
	return exitFailed
}

// restartsTooOften looks at a status of a pod, as it is seen before what follows from it is
// decided, and reports whether a container has exited that has been restarted as
// often as it may be, and would be again.
func (r *podRun) restartsTooOften(pod *v1.Pod, s agent.Status) bool {
	if r.maxRestarts < 0 || s.Terminating {
		return false
	}
	containers := restartpod.Containers(&pod.Spec, r.gates)
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

func (r *podRun) dir(pod *v1.Pod) string {
	return filepath.Join(r.root, strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_"))
}

// runPod runs a pod until it has ended or ctx is done and it was stopped.
func (r *podRun) runPod(ctx context.Context, pod *v1.Pod, files manifest.Files) (v1.PodPhase, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir := r.dir(pod)
	if err := os.MkdirAll(r.root, 0o700); err != nil {
		return "", err
	}
	// A pod of the same name from another manifest is not to run beside it either.
	name := pod.Namespace + "_" + pod.Name
	unlock, err := lock(filepath.Join(r.root, name+lockSuffix))
	if err != nil {
		return "", fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	o := agent.Options{
		Pod: pod, Gates: r.gates, ContainerBackOff: r.containerBackOff, PodBackOff: r.podBackOff, GRPC: checkHealth,
		Recorder: r.printer.recorder(pod), Report: func(s agent.Status) {
			if r.printer.status(pod, s); ctx.Err() == nil && r.restartsTooOften(pod, s) {
				cancel()
			}
		},
	}
	if r.endpoint == "" {
		o.Runtime, err = process.New(pod, dir, !r.unconfined, r.printer.output(pod), func(container, message string) {
			r.printer.warn(pod, container, "IncompleteLog", message)
		})
		if err != nil {
			return "", err
		}
	} else {
		runtime, err := cri.New(ctx, r.endpoint, pod, dir, r.printer.output(pod))
		if err != nil {
			if ctx.Err() != nil {
				return v1.PodRunning, nil // It was stopped before it began.
			}
			return "", err
		}
		defer runtime.Close()
		o.Runtime, o.StatusFile = runtime, filepath.Join(dir, cri.StatusFile)
	}
	if err := files.Write(dir); err != nil {
		return "", err
	}
	for _, other := range podFolders(r.root, name) {
		if other != dir && !inUse(other) {
			os.RemoveAll(other)
		}
	}
	a, err := agent.New(o)
	if err != nil {
		return "", err
	}
	return a.Run(ctx), nil
}
