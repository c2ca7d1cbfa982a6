// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-base/featuregate"

	"github.com/kubelet-backoff/kubelet-backoff/agent/cri"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/poddir"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/printer"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

type runOptions struct {
	configOptions
	manifestFlags
	commands []string
	endpoint string
	process  process.Options
	memory   string
	rootDir  string
	output   string
	// timeout is 0 and maxRestarts negative if there is no limit.
	timeout     time.Duration
	maxRestarts int
}

func newRunCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [--config FILE] [--config-dir DIR] [--curve CURVE] [--feature-gates GATES] [--runtime-endpoint URL] [--host-dir DIR] [--host-network] [--pids-limit N] [--memory-limit QUANTITY] [--unconfined] [--root-dir DIR] [--timeout DURATION] [--max-restarts N] [--command NAME=COMMAND] [-o FORMAT] [-f FILE|DIR|-] [-R] MANIFEST ...",
		Short: "Run pods on this machine with the kubelet's restart behavior",
		Long: `Run the pods of the manifests until they end or you press Ctrl-C. Pods behave as on
a node with a kubelet of this project: order of init containers, sidecars and
containers, restart policies and rules, back-off, restarts of the whole pod,
hooks, grace periods and probes. Only a container with the policy OnFailure that
fails a probe waits for its back-off here, and starts at once on a node. A
Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job,
CronJob or PodTemplate runs as one pod. An object that another object in the
input controls is skipped.
ConfigMaps and Secrets come from the manifests; a missing one counts as empty,
with a warning. Volumes that need a cluster are empty directories.

Without --runtime-endpoint each container is a process on this machine, in a sandbox
of bubblewrap (apt-get install bubblewrap). This needs Linux, but neither root nor
an image. For a container without a command, a stand-in runs and says so. A command
is looked up on this machine. It gets only PATH and HOME from
the environment. A container sees its own processes, its volumes at their mountPath,
its own /tmp, and the programs of this machine read-only (/usr, /etc, /opt), but no
other files; --host-dir adds a directory. Without a workingDir it runs in the
current directory if it sees that. The pod has its own network, shared only by its
containers and probes; --host-network gives it that of this machine. --pids-limit
and --memory-limit limit what it can take from this machine. All processes end with
crashloop, even if it is killed. With --unconfined there is no sandbox, and the pods
can do whatever their user can do.

With --runtime-endpoint the containers run in a CRI runtime such as containerd. No
kubelet may use that runtime, because it would stop the containers. They keep
running if crashloop is killed; the next run of the same manifest adopts them.

The back-off is that of a kubelet with the same --config, --config-dir and
--feature-gates; 'crashloop check' prints it. If a start fails after something was
created (create, run error), the attempt counts as an exit. If nothing was created,
for example because the image cannot be pulled, the container is retried after 10 s
and the back-off does not grow. Fields of a pod that have no effect here are listed
in a warning. Fields that would change the meaning of the pod are errors.

On a terminal, a table of the containers follows the lines of output. Otherwise
there are only lines. With -o json each event is a JSON object on one line, warnings
and errors are JSON objects on stderr, and the output of containers is only in
their logs.

Exit status: 0 all pods succeeded; 1 a pod failed or could not run, or the output
could not be written; 2 wrong usage; 3 a manifest or the configuration is invalid,
and nothing was run. If the pods were stopped: 4 by --max-restarts, 124 by
--timeout, 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP, 141 because nobody reads the
output. The first Ctrl-C stops the pods within their grace periods; the second ends
crashloop at once.`,
		Example: `  # run a pod as on a node with the default configuration
  crashloop run pod.yaml

  # with another curve, and with restarts of the whole pod
  crashloop run --config kubelet.yaml --feature-gates RestartPodOnContainerExits=true pod.yaml

  # with a container runtime, as root
  crashloop run --runtime-endpoint unix:///run/containerd/containerd.sock pod.yaml`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeManifests,
		RunE: func(cmd *cobra.Command, manifests []string) error {
			if len(manifests)+len(o.files) == 0 {
				return errors.New("no MANIFEST: name a file or a directory, or - for stdin")
			}
			commands := map[string]string{}
			for _, text := range o.commands {
				name, command, ok := strings.Cut(text, "=")
				if !ok || name == "" || command == "" {
					return fmt.Errorf("--command %q: must be NAME=COMMAND, with the name of a container and a shell command", text)
				}
				commands[name] = command
			}
			if o.timeout < 0 {
				return fmt.Errorf("--timeout %s: must not be negative", o.timeout)
			}
			if o.process.PIDsLimit < 0 {
				return fmt.Errorf("--pids-limit %d: must not be negative", o.process.PIDsLimit)
			}
			memory, err := resource.ParseQuantity(o.memory)
			if err != nil || memory.Sign() < 0 {
				return fmt.Errorf("--memory-limit %s: must be a quantity of bytes, such as 512Mi, or 0", o.memory)
			}
			o.process.MemoryLimit = memory.Value()
			for _, limit := range []*int64{&o.process.PIDsLimit, &o.process.MemoryLimit} {
				if *limit == 0 {
					*limit = -1
				}
			}
			return runPods(o, o.list(manifests), commands, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addConfigFlags(cmd, &o.configOptions)
	flags := cmd.Flags()
	flags.StringVar(&o.endpoint, "runtime-endpoint", "", "a CRI runtime, as the kubelet's containerRuntimeEndpoint: unix:///run/containerd/containerd.sock")
	flags.StringArrayVar(&o.process.HostDirs, "host-dir", nil, "a directory of this machine that the containers see, read-only, for example that of your program\nThey can use the sockets and FIFOs in it")
	flags.BoolVar(&o.process.HostNetwork, "host-network", false, "give the pods the network of this machine, with all that listens on it")
	flags.Int64Var(&o.process.PIDsLimit, "pids-limit", process.DefaultPIDsLimit, "the number of processes and threads of a pod; 0 is no limit")
	flags.StringVar(&o.memory, "memory-limit", "2Gi", "the memory of a pod, or of each of its processes if crashloop may not make cgroups; 0 is no limit")
	flags.BoolVar(&o.process.Unconfined, "unconfined", false, "run processes without a sandbox: they get no volumes, and can do whatever their user can do")
	flags.StringVar(&o.rootDir, "root-dir", "", "the directory in which the folder crashloop-pods has logs and volumes (default the user's cache directory)")
	addManifestFlags(cmd, &o.manifestFlags)
	flags.StringArrayVar(&o.commands, "command", nil, "a shell command for all containers with this name, in place of their command or that of their image\nIts \"$@\" are the args of the container")
	flags.DurationVar(&o.timeout, "timeout", 0, "stop the pods after this time; 0 is no limit")
	flags.IntVar(&o.maxRestarts, "max-restarts", -1, "stop the pods when a container would be restarted more than N times; -1 is no limit")
	usage.Output(cmd, &o.output, printer.Formats())
	usage.Name(cmd, map[string]string{"runtime-endpoint": "URL", "root-dir": "DIR", "timeout": "DURATION", "max-restarts": "N", "host-dir": "DIR", "pids-limit": "N", "memory-limit": "QUANTITY", "command": "NAME=COMMAND"})
	cobra.CheckErr(cmd.MarkFlagDirname("root-dir"))
	cobra.CheckErr(cmd.MarkFlagDirname("host-dir"))
	return cmd
}

// runPods runs the pods of the manifests. If it returns an exitError, it has written
// the errors.
func runPods(o runOptions, manifests []string, commands map[string]string, stdin io.Reader, stdout, stderr io.Writer) error {
	issues := issueWriter{stderr, o.output}
	r := &report{}
	c := r.addConfig(o.curve, o.load)
	var pods []podManifest
	if c != nil {
		support := process.Support
		if o.endpoint != "" {
			support = cri.Support
		}
		pods = r.addPods(manifests, stdin, commands, restartGates(c.FeatureGate), support)
		if len(pods) == 0 && len(r.Errors) == 0 {
			r.Errors = append(r.Errors, newIssue("", "", "", "nothing to run: no manifest has a pod or a pod template"))
		}
		r.addGatesNotHonored("crashloop run", c.FeatureGate)
		for _, p := range pods {
			r.warnOfAnnotations(p, c.FeatureGate)
		}
		if o.endpoint == "" {
			r.confine(pods, o.process)
		}
	}
	if !r.logIssues(issues) {
		return exitError(exitRefused)
	}
	root := o.rootDir
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return failed(fmt.Errorf("no directory for logs and volumes (%w): set --root-dir", err))
		}
		root = cache
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return failed(fmt.Errorf("--root-dir %s: %w", o.rootDir, err))
	}
	return newPodRun(o, c.FeatureGate, r.curve, poddir.Open(root, poddir.MaxPods, poddir.MaxBytes), pods, stdout, issues).run(pods)
}

// logIssues writes the warnings, except those about image pulls, and the errors. It
// reports whether there are no errors.
func (r *report) logIssues(issues issueWriter) bool {
	for _, w := range r.Warnings {
		if w.File != "" || w.Field != "" { // A warning about image pulls has neither.
			issues.write("warning", w)
		}
	}
	for _, e := range r.Errors {
		issues.write("error", e)
	}
	return len(r.Errors) == 0
}

// addGatesNotHonored warns of disabled gates with which a kubelet has upstream's
// behavior. The command does not implement that behavior.
func (r *report) addGatesNotHonored(command string, gates featuregate.FeatureGate) {
	for _, gate := range []featuregate.Feature{config.KubeletStrictCrashLoopBackOff, config.KubeletRestartAllContainersBackOff} {
		if !gates.Enabled(gate) {
			r.Warnings = append(r.Warnings, newIssue("", "", "featureGates", string(gate)+"=false is not honored: "+command+" only has the behavior with the gate enabled"))
		}
	}
}
