// SPDX-License-Identifier: Apache-2.0

// Command crashloop shows how a kubelet restarts containers. check prints the back-off of
// a configuration, plan predicts the restarts of a pod, run runs pods on this machine, and
// status reads the metrics of a kubelet. None of them needs a cluster. Under the name
// kubectl-crashloop it is a plugin of kubectl, for the pods and nodes of a cluster.
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/cli"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

// The exit statuses.
const (
	exitSucceeded = 0
	// exitFailed is for errors while writing or running, for invalid metrics, and for pods
	// that failed.
	exitFailed = 1
	exitUsage  = 2
	// exitRefused is for a manifest or a configuration that is invalid or cannot be read.
	// It differs from exitFailed, so that a script can tell such a pod from one that failed.
	exitRefused = 3
	// The others are for pods of run that a limit stopped. 124 is also the exit status of
	// timeout(1).
	exitMaxRestarts = 4
	exitTimeout     = 124
	// exitUnread is that of a process that SIGPIPE ends.
	exitUnread = 128 + 13
)

// exitError ends a command with an exit status after the command has written its errors.
// For a cli.Failure, run writes the error. Every other error is a usage error.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// failed wraps an error of a command so that its exit status is exitFailed. It returns nil
// for nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &cli.Failure{Err: err}
}

func main() {
	// Log lines of libraries would break the JSON and the table.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	root, args := newRootFor(os.Args[0], os.Args[1:])
	os.Exit(execute(root, args, os.Stdin, os.Stdout, os.Stderr))
}

// run is main for crashloop, with its dependencies as arguments. It returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(newRootCommand(), args, stdin, stdout, stderr)
}

// execute executes a command of a root command. It returns the exit status.
func execute(root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	refuseUnknown(root) // This must follow SetOut, because completion keeps the writer.
	cmd, err := root.ExecuteC()
	var status exitError
	var failure *cli.Failure
	switch {
	case err == nil:
		return exitSucceeded
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &failure):
		w := issueWriter{w: stderr}
		if output := cmd.Flag("output"); output != nil {
			w.format = output.Value.String()
		}
		w.error(failure.Error())
		if failure.Refused {
			return exitRefused
		}
		return exitFailed
	case wantsJSON.MatchString(strings.Join(args, " ")):
		issueWriter{stderr, outputJSON}.error(err.Error())
		return exitUsage
	default:
		// The suggestions of cobra keep their line breaks.
		message, suggestions, _ := strings.Cut(err.Error(), "\n\nDid you")
		if suggestions != "" {
			suggestions = "\n\nDid you" + suggestions
		}
		fmt.Fprintf(stderr, "error: %s%s\nSee '%s --help'.\n", text.Printable(message), suggestions, cmd.CommandPath())
		return exitUsage
	}
}

// wantsJSON matches -o json in arguments that are invalid and joined by spaces.
var wantsJSON = regexp.MustCompile(`(?:^| )(?:-o[ =]?|--output[ =])` + outputJSON + `(?: |$)`)

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "crashloop",
		Short: "Show how a kubelet restarts containers",
	}
	root.AddCommand(newCheckCommand(), newPlanCommand(), newRunCommand(), newStatusCommand())
	return setUp(root)
}

// setUp sets what root commands have in common.
func setUp(root *cobra.Command) *cobra.Command {
	root.SilenceErrors, root.SilenceUsage = true, true
	if info, ok := debug.ReadBuildInfo(); ok {
		root.Version = info.Main.Version
	}
	root.SetFlagErrorFunc(usage.Error)
	root.AddCommand(newVersionCommand())
	return root
}

// refuseUnknown makes cobra's commands help and completion return an error for an unknown
// argument. By default they print help and succeed.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = fmt.Errorf("unknown command %q for %q", rest[0], found.CommandPath())
				}
				return err
			}
		case "completion":
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}
