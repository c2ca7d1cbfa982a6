// SPDX-License-Identifier: Apache-2.0

// Patchset gets the source tree of a kubernetes release, applies a patch series to it and reverses it, and writes edits of the
// series' branch back to the patches. The commits of the branch are the patches; git does the rest.
//
// Words used throughout:
//
//	tree     a git checkout of kubernetes: KUBE_ROOT, or _output/VERSION/kubernetes, which fetch makes
//	series   a directory such as patches/v1.37
//	branch   kubelet-backoff-v1.37: the applied series, one commit per patch
//	source   the place of a new file of a patch: the library, or patches/_src
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// program has the settings of a command.
type program struct {
	ctx context.Context
	sys.Log
	series.Store
	kubeRoot, kubeVersion string
	pick                  series.Pick // which patches to apply
}

func newProgram(ctx context.Context) (*program, error) {
	p := &program{
		ctx: ctx, Log: sys.Log{Out: os.Stdout}, kubeRoot: os.Getenv("KUBE_ROOT"), kubeVersion: os.Getenv("KUBE_VERSION"),
		pick: series.Pick{Parts: os.Getenv("SERIES"), Skip: os.Getenv("SKIP")},
	}
	var err error
	if p.kubeVersion != "" {
		if p.kubeVersion, err = series.Release(p.kubeVersion); err != nil {
			return nil, fmt.Errorf("KUBE_VERSION: %w", err)
		}
	}
	p.Store, err = series.Open(ctx)
	return p, err
}

func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "hack/patchset.sh COMMAND",
		Short: "Apply the patch series to kubernetes trees, and maintain it.",
		Long: `hack/patchset.sh gets the source tree of a kubernetes release, applies a patch series to it and reverses it, and writes edits of
the series' branch to the patches. The tree is KUBE_ROOT, a git checkout, or else _output/KUBE_VERSION/kubernetes.`,
		SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	add := func(use, short, long string, run func() error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Long: short + ".\n\n" + long, Args: cobra.NoArgs, DisableFlagsInUseLine: true,
			RunE: func(*cobra.Command, []string) error { return run() }}
		root.AddCommand(c)
		return c
	}
	alone := func(run func() error) func() error {
		return func() error {
			unlock, err := p.Lock(p.ctx, filepath.Join(p.Output, ".tree.lock"), "apply, reverse or refresh")
			if err != nil {
				return err
			}
			defer unlock()
			return run()
		}
	}
	var keep, pin, changed, noBuild, applied, noForm bool
	var base string
	add("apply [--keep]", "Apply the series that fits the tree", `Makes a branch with one commit per patch, and checks it out. A missing tree of KUBE_VERSION is fetched. If anything fails, the tree stays
as it was; if the command is killed, the next one restores it. SERIES=core applies only the patches whose message says "Series: core".
SKIP="images hosts" leaves these patches out.`,
		alone(func() error { return p.apply(keep) })).Flags().BoolVar(&keep, "keep", false, "use a branch that was edited since as it is")
	add("reverse", "Undo apply", `Checks out what was checked out before, and deletes the branch. It refuses if that would lose work: changes that are not committed, or
commits that apply did not make.`, alone(p.reverse))
	add("refresh [--base COMMIT]", "Write the commits of the branch to the patches", `Writes messages and hunks of upstream's files to the series, and applies it again. A patch that is the same as in the next newer release
with that patch has no file of its own. New files belong to the library or to patches/_src: edit them there. Refresh refuses, and
names the place, if they were edited on the branch. With --base the branch starts at that commit, because it was rebased to
another one, or because you made it yourself for a new release: see docs/rebasing.md.`,
		alone(func() error { return p.refresh(base) })).Flags().StringVar(&base, "base", "", "the commit at which the branch starts")
	add("export", "Write the series in mailbox format for plain git am", "They contain the new files too. They are in _output/series.", p.export)
	verify := add("verify [--no-build | --no-form]", "Check a series in a scratch clone of the tree", `The form: the commit of each patch, formatted again, is the stored patch; apply makes the same trees as plain git am of the mails; each
hunk fits only its place; and reverse restores everything. The build: after each patch,
kubelet, kube-apiserver and the packages that it changes type-check, with their tests; at the end both programs build, and go vet
passes.`, func() error { return p.verify(!noForm, !noBuild) })
	verify.Flags().BoolVar(&noBuild, "no-build", false, "check only the form")
	verify.Flags().BoolVar(&noForm, "no-form", false, "check only the build")
	fetch := add("fetch [--pin | --changed]", "Get the source tree of KUBE_VERSION", `Downloads k8s.io/kubernetes and its staging modules from the Go module proxy ("go env GOPROXY"), and makes one commit of them, tagged
with the release. The downloads must have the hashes in patches/RELEASE/kubernetes.sum.`,
		func() error { return p.fetch(pin, changed) })
	fetch.Flags().BoolVar(&pin, "pin", false, "add the hashes of a new release to that file")
	fetch.Flags().BoolVar(&changed, "changed", false, "leave out staging modules that the series does not change: the tree does not build, but apply works")
	fetch.MarkFlagsMutuallyExclusive("pin", "changed")
	add("tree [--applied]", "Print the tree as variables for a shell", `TREE, VERSION, BRANCH, BASE and BASE_TIME, COMMIT and COMMIT_TIME, TREE_STATE (clean or dirty), and EXACT, which is 1 if the tree is exactly
a release with a series.`,
		func() error { return p.printTree(applied) }).Flags().BoolVar(&applied, "applied", false, "fail unless a series is applied")
	add("packages", "Print the Go packages that the series changes", "", p.printPackages)
	return root
}

func main() {
	// Under nohup, SIGHUP stays ignored.
	signals := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGHUP}, signal.Ignored)
	ctx, stop := signal.NotifyContext(context.Background(), append(signals, syscall.SIGTERM)...)
	defer stop()
	p, err := newProgram(ctx)
	if err == nil {
		err = p.command().Execute()
	}
	if err != nil {
		// The interruption is the cause of any other error.
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "interrupted")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "error: "+sys.Indent(err.Error(), "       "))
		os.Exit(1)
	}
}
