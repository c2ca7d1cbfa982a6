// SPDX-License-Identifier: Apache-2.0

// Command crashloop prints what a kubelet's container restart back-off will be, runs
// pods with it, and prints what the metrics of a patched kubelet say of restarts. Only
// the last needs a kubelet, and none needs a cluster.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// The exit statuses.
const (
	exitSucceeded = 0
	// exitFailed is for what is invalid, what cannot be read, written or run, and
	// pods that failed.
	exitFailed = 1
	exitUsage  = 2
	// The following are run's: for a manifest or a configuration that is refused,
	// and for pods that a limit has stopped. As timeout(1) has it, the last is 124.
	exitRefused     = 3
	exitMaxRestarts = 4
	exitTimeout     = 124
)

// exitError ends a command that has written why, with that exit status. All
// other errors are of usage.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main with all that it depends on. It returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	refuseUnknown(root) // Now, for completion keeps the output that it finds.
	cmd, err := root.ExecuteC()
	var status exitError
	switch {
	case err == nil:
		return exitSucceeded
	case errors.As(err, &status):
		return int(status)
	case wantsJSON(args):
		newIssueWriter(stderr, outputJSON).error(err.Error())
		return exitUsage
	default:
		// Only the suggestions of cobra have several lines.
		text, suggestions, _ := strings.Cut(err.Error(), "\n\nDid you")
		if suggestions != "" {
			suggestions = "\n\nDid you" + suggestions
		}
		fmt.Fprintf(stderr, "error: %s%s\nSee '%s --help'.\n", printable(text), suggestions, cmd.CommandPath())
		return exitUsage
	}
}

// wantsJSON reports whether the arguments, which are not valid, ask for JSON.
func wantsJSON(args []string) bool {
	text := " " + strings.Join(args, " ") + " "
	for _, flag := range []string{"-o ", "-o=", "-o", "--output ", "--output="} {
		if strings.Contains(text, " "+flag+outputJSON+" ") {
			return true
		}
	}
	return false
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "crashloop",
		Short:         "What a kubelet's container restart back-off will be or is, and pods that run with it",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		root.Version = info.Main.Version
	}
	root.AddCommand(newCheckCommand(), newPlanCommand(), newRunCommand(), newStatusCommand())
	return root
}

// refuseUnknown makes a wrong argument of cobra's own commands help and
// completion an error, as it is for the others: they print help and succeed.
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
