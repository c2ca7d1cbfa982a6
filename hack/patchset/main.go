// SPDX-License-Identifier: Apache-2.0

// Patchset gets the source tree of a kubernetes release, applies a patch series to it, takes it back, and brings what was
// edited on either side to the other.
//
// Words used throughout:
//
//	tree     a kubernetes source tree: KUBE_ROOT, or _output/VERSION/kubernetes as fetch makes it
//	series   one directory under patches/: BASE, series, the patches it names, and what it overrides in _src
//	branch   kubelet-backoff-<series>: the series applied, one commit per patch
//	source   where a new file of a patch is kept: the library, or patches/_src
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/process"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

// program is what a command works with.
type program struct {
	ctx context.Context
	console.Log
	series.Store
	env    []string // for git, without the user's git settings
	output string   // _output

	kubeRoot, kubeVersion string
	skip                  string // numbers of patches to leave out
	seriesName            string // the series to take, whatever the tree's release
	checked               string // what a script that records a check has begun with
}

func newProgram(ctx context.Context) (*program, error) {
	p := &program{
		ctx: ctx, Log: console.Log{Out: os.Stdout, ErrOut: os.Stderr}, Store: series.Store{Root: os.Getenv("KB_ROOT")},
		kubeRoot: os.Getenv("KUBE_ROOT"), kubeVersion: os.Getenv("KUBE_VERSION"),
		skip: os.Getenv("SKIP"), seriesName: os.Getenv("KB_SERIES"), checked: os.Getenv("KB_CHECKED"),
	}
	dir, err := os.Getwd()
	if p.Root == "" {
		for p.Root = dir; !isLibrary(p.Root); p.Root = filepath.Dir(p.Root) {
			if p.Root == filepath.Dir(p.Root) {
				return nil, console.Error(fmt.Sprintf("%s is not inside a checkout of %s", dir, series.LibraryModule), "Run this there.")
			}
		}
	}
	p.Patches = filepath.Join(p.Root, "patches")
	p.output = filepath.Join(p.Root, "_output")
	if v := os.Getenv("KB_OUTPUT_DIR"); filepath.IsAbs(v) {
		p.output = v
	} else if v != "" {
		p.output = filepath.Join(dir, v)
	}
	return p, err
}

func isLibrary(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && fileutil.HasLine(string(data), "module "+series.LibraryModule)
}

// interruption is the error of a command that a signal ended.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string {
	if i.signal == syscall.SIGINT {
		return "interrupted"
	}
	return "terminated"
}

var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

func main() { os.Exit(run()) }

func run() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range stopSignals {
		// nohup has SIGHUP ignored.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() { cancel(interruption{<-signals}) }()

	p, err := newProgram(ctx)
	if err == nil {
		err = p.command().ExecuteContext(ctx)
	}
	if err == nil {
		return 0
	}
	// Whatever the error is, it comes from the interruption.
	var i interruption
	if errors.As(context.Cause(ctx), &i) {
		fmt.Fprintln(os.Stderr, i)
		if i.signal == syscall.SIGINT {
			return 130
		}
		return 143
	}
	fmt.Fprintln(os.Stderr, "error: "+console.Indent(err.Error(), "       "))
	return 1
}

// lock takes an exclusive lock on a file in the output directory, and says what it waits for.
func (p *program) lock(name, what string) (unlock func(), err error) {
	return fileutil.Lock(p.ctx, filepath.Join(p.output, name), func() { p.Say("Waiting for another %s in %s to end", what, p.output) })
}

// long runs a command that takes long; see the function of this name.
func (p *program) long(label, dir string, env []string, name string, args ...string) (string, time.Duration, error) {
	return process.Long(p.ctx, p.Log, label, dir, env, name, args...)
}

// needGit finds git, for all that run it.
func (p *program) needGit() (err error) {
	p.env, err = git.Environment()
	p.Git = git.New(p.ctx, p.env)
	return err
}

// loadSeries reads a series, without the patches to skip.
func (p *program) loadSeries(dir string) (*series.Series, error) { return p.Load(dir, p.skip) }

// uninterrupted is the program for what must be finished: signals do not reach it.
func (p *program) uninterrupted() *program {
	q := *p
	q.ctx = context.Background()
	q.Git = q.Git.WithContext(q.ctx)
	return &q
}

var ignoreSignals = sync.OnceFunc(func() { signal.Ignore(stopSignals...) })

func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "patchset",
		Short:         "The patch series: a kubernetes tree with it, and back",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.needGit() },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	add := func(parent *cobra.Command, use, short, long string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Long: long, Args: args, RunE: run, DisableFlagsInUseLine: true}
		parent.AddCommand(c)
		return c
	}
	none := cobra.NoArgs

	add(root, "fetch [VERSION]", "get the source tree of a kubernetes release",
		`Fetch gets the source tree of a kubernetes release, in _output/VERSION/kubernetes.

The tree is put together from the Go module proxy (whatever "go env GOPROXY" says): k8s.io/kubernetes and every staging
module, laid out as in git, as a git repository with one commit tagged VERSION. The commit is the same on every machine.
What is downloaded must have the hashes in patches/<series>/kubernetes.sum, where that names the release. A tree that is
there already is left alone. An interrupted run leaves nothing behind.`, cobra.MaximumNArgs(1),
		func(_ *cobra.Command, args []string) error { return p.fetchCommand(args) })
	add(root, "pin VERSION", "write the hashes of a release into its series",
		`Pin downloads the modules of a kubernetes release and writes their hashes into kubernetes.sum of the series that fits,
for fetch to compare with from then on. Hashes that are there are not replaced.`, cobra.ExactArgs(1),
		func(_ *cobra.Command, args []string) error { return p.pin(args[0]) })

	var keep bool
	apply := add(root, "apply [--keep]", "apply the series to the tree, on a branch",
		`Apply applies the series that fits the tree to a new branch, kubelet-backoff-<series>, one commit per patch. The tree is
KUBE_ROOT (a git checkout or a plain source tree), or else _output/KUBE_VERSION/kubernetes, fetched when missing. When
anything fails the tree is put back as it was, bit for bit. "patchset reverse" undoes it.

SKIP="4 6" or SKIP="config images" in the environment leaves these patches out, as if their lines in "series" were commented out.`, none,
		func(*cobra.Command, []string) error { return p.alone(func() error { return p.apply(keep) }) })
	apply.Flags().BoolVar(&keep, "keep", false, "be content with a series branch that somebody has edited since")

	var force bool
	reverse := add(root, "reverse [--force]", "take the series back",
		`Reverse undoes apply: it checks out again what was checked out before, and deletes the series branch. Nothing else is
removed. It refuses when that would lose work: uncommitted changes, or commits that no patch file holds.`, none,
		func(*cobra.Command, []string) error { return p.alone(func() error { return p.reverse(force) }) })
	reverse.Flags().BoolVar(&force, "force", false, "lose them")

	var r refreshOptions
	refresh := add(root, "refresh [--base COMMIT] [--library-wins] [--check]", "bring the tree and its sources together",
		`Refresh brings what was edited on the series branch to where it is kept, and what was edited there to the branch: files
of the library to the library, other new files to patches/_src, changes of upstream's files and messages to the patches.
What was edited on both sides is a conflict; it is shown, and nothing is written. Messages, authors and dates of the
commits stay as they are. Running it twice changes nothing; one that was killed is to be run again.`, none,
		func(*cobra.Command, []string) error { return p.alone(func() error { return p.refresh(r) }) })
	refresh.Flags().StringVar(&r.base, "base", "", "the branch was rebased: this `commit` is where it starts now")
	refresh.Flags().BoolVar(&r.sourceWins, "library-wins", false, "a conflict is decided for the library and patches/_src")
	refresh.Flags().BoolVar(&r.check, "check", false, "write nothing; fail if there is something to refresh")

	add(root, "carry VERSION", "begin a series for another minor version",
		`Carry begins the series of a release whose minor version has none: with the patches of the next newer series, or else
of the newest. They become commits on the branch of the new series, still on the release that they were made for. Carry
prints the git rebase that brings them to the new release, and what writes the new series then.

Where a file of patches/_src does not fit the new release, patches/<series>/_src/PATCH/PATH takes its place, for this release and
those before it that have none of their own, with a line in patches/<series>/_src/REASONS: "PATCH/PATH: why".`, cobra.ExactArgs(1),
		func(_ *cobra.Command, args []string) error { return p.alone(func() error { return p.carry(args[0]) }) })

	var noBuild bool
	verify := add(root, "verify [--no-build]", "prove that the series is in order",
		`Verify proves of the series that fits the tree (found as by apply), in a scratch checkout of its own:

  - each patch ends with its four trailers, holds nothing but changes of files that the release has, and formatting its
    commit again gives the stored bytes
  - apply, and plain "git am" of the mails that export writes, make the same trees commit by commit, and reverse restores
    everything
  - upstream's hack/verify-boilerplate.sh passes, of the files that the series changes, and hack/verify-featuregates.sh
    (--no-build leaves the latter out, which compiles)
  - after each patch all packages of the kubelet compile, and those which that patch touches pass go vet, tests included;
    after the last one kubelet and kube-apiserver build (--no-build leaves this out)`, none,
		func(*cobra.Command, []string) error { return p.verify(true, !noBuild) })
	verify.Flags().BoolVar(&noBuild, "no-build", false, "compile nothing")

	var all struct {
		only, checks []string
	}
	verifyAll := add(root, "verify-all [--only LIST] [--check LIST]", "prove that all series are in order",
		`Verify-all runs these checks of each series, on the release that it was made on, each check for all series, newest first:

  patches  verify --no-build
  tests    hack/test-patched.sh
  build    what verify compiles
  others   the series applies to the other patch versions that BASE names ("applies: v1.37.0 v1.37.2"), and reverses

A series that fails does not stop the others. What passed is kept in _output/releases and is not run again while the series
is the same, so that an interrupted run goes on where it was. The logs are there too.`, none,
		func(c *cobra.Command, _ []string) error {
			for name, list := range map[string][]string{"only": all.only, "check": all.checks} {
				if c.Flags().Changed(name) && len(list) == 0 {
					return fmt.Errorf("--%s is empty; leave it out for all", name)
				}
			}
			return p.verifyAll(all.only, all.checks)
		})
	verifyAll.Flags().StringSliceVar(&all.only, "only", nil, "the series to look at, such as v1.36,v1.35, or newest")
	verifyAll.Flags().StringSliceVar(&all.checks, "check", nil, "the checks to run, such as patches,tests")
	var writeMatrix bool
	matrix := add(root, "matrix [--write]", "print which release has what, and what came of its checks",
		`Matrix prints in Markdown what came of the checks of each series, as verify-all and the scripts that need a node have
left it in _output/releases, and which release has which patch.`, none,
		func(*cobra.Command, []string) error { return p.matrixCommand(writeMatrix) })
	matrix.Flags().BoolVar(&writeMatrix, "write", false, "write it to docs/results/releases.md, and a summary into "+patchesPage)
	var writeDeviations bool
	deviations := add(root, "deviations [--write]", "print how each release differs from upstream",
		`Deviations prints in Markdown what each patch changes and why, as its message says.`, none,
		func(*cobra.Command, []string) error {
			return p.page(writeDeviations, "docs/deviations.md", p.deviations)
		})
	deviations.Flags().BoolVar(&writeDeviations, "write", false, "write it to docs/deviations.md")

	add(root, "export", "write the series as mails for git am",
		`Export writes the series that fits the tree to _output/series/<series>: mails that hold everything, which plain "git am"
applies in a checkout that knows nothing of this repository.`, none,
		func(*cobra.Command, []string) error { return p.export() })
	add(root, "dist", "make a release archive",
		`Dist writes to _output/dist an archive of the commit that is checked out, with the mails of every series, and SHA256SUMS.
It is the same to the byte wherever and whenever it is made of one commit.`, none,
		func(*cobra.Command, []string) error { return p.dist() })
	var write bool
	stat := add(root, "stat [--write]", "count the changed lines of upstream's files",
		`Stat prints a table in Markdown: how many lines of upstream's files each patch of the newest series changes, added plus
removed.`, none, func(*cobra.Command, []string) error { return p.statCommand(write) })
	stat.Flags().BoolVar(&write, "write", false, "put it into "+patchesPage)
	add(root, "render FILE", "print a file of the library as it is in the tree", "", cobra.ExactArgs(1),
		func(_ *cobra.Command, args []string) error { return p.renderCommand(args[0]) })
	add(root, "clean", "remove _output, but no tree with unsaved work in it",
		`Clean removes _output. A source tree in it that holds somebody's work (changes and new files that are not committed,
stashes, or commits that no patch file holds) is kept, and named.`, none,
		func(*cobra.Command, []string) error { return p.clean() })

	// For the scripts.
	var failed bool
	record := add(root, "record CHECK [DETAILS]", "keep what came of a check of the tree's series", "", cobra.RangeArgs(1, 2),
		func(_ *cobra.Command, args []string) error {
			return p.record(args[0], !failed, strings.Join(args[1:], ""))
		})
	record.Flags().BoolVar(&failed, "failed", false, "it failed")
	record.Hidden = true
	add(root, "checked", "print what identifies the tree's series", "", none,
		func(*cobra.Command, []string) error { return p.checkedCommand() }).Hidden = true
	var fetch, applied bool
	locate := add(root, "tree", "say, for a shell, which tree is meant", "", none,
		func(*cobra.Command, []string) error { return p.treeCommand(fetch, applied) })
	locate.Hidden = true
	locate.Flags().BoolVar(&fetch, "fetch", false, "get it if it is not there")
	locate.Flags().BoolVar(&applied, "applied", false, "fail unless the series is applied and checked out")
	add(root, "checkout DIR", "make a checkout of the tree without the series", "", cobra.ExactArgs(1),
		func(_ *cobra.Command, args []string) error { return p.checkoutCommand(args[0]) })
	add(root, "packages", "print the Go packages that the series touches", "", none,
		func(*cobra.Command, []string) error { return p.packagesCommand() })
	return root
}

// alone runs what changes a tree when nothing else does.
func (p *program) alone(run func() error) error {
	unlock, err := p.lock(".tree.lock", "apply, reverse or refresh")
	if err != nil {
		return err
	}
	defer unlock()
	return run()
}

// seriesFor is the directory of the series for a release: that of its minor version.
func (p *program) seriesFor(version string) (dir string, err error) {
	if p.seriesName != "" {
		dir = filepath.Join(p.Patches, p.seriesName)
		if _, err := os.Stat(filepath.Join(dir, "BASE")); err != nil {
			return "", console.Error(fmt.Sprintf("KB_SERIES=%s: there is no such series", p.seriesName), p.Describe())
		}
		return dir, nil
	}
	dir = filepath.Join(p.Patches, semver.MajorMinor(version))
	if !slices.Contains(p.All(), dir) {
		return "", console.Error(fmt.Sprintf("no series fits kubernetes %s. There are, in %s:", version, p.Patches), p.Describe(),
			"Choose one of these releases with KUBE_VERSION, or try a series on another release with KB_SERIES=NAME.")
	}
	return dir, nil
}

// pickSeries loads the series for a release. One that BASE does not name is tried: BASE says only what was tried already.
func (p *program) pickSeries(version string) (*series.Series, error) {
	dir, err := p.seriesFor(version)
	if err != nil {
		return nil, err
	}
	s, err := p.loadSeries(dir)
	if err == nil && p.seriesName == "" && version != s.Tag && !slices.Contains(s.Applies, version) {
		p.Note("%s is none of the releases that %s is tried on (%s); trying it all the same", version, s.Name, strings.Join(append([]string{s.Tag}, s.Applies...), " "))
	}
	return s, err
}

func (p *program) packagesCommand() error {
	out := p.Out
	p.Out = p.ErrOut
	t, err := p.locate()
	if err != nil {
		return err
	}
	a, err := t.RequireApplied()
	if err != nil {
		return err
	}
	s, err := p.loadSeries(filepath.Join(p.Patches, a.Series))
	if err != nil {
		return err
	}
	packages, err := p.Packages(t.Dir, s.Active...)
	for _, name := range packages {
		fmt.Fprintln(out, name)
	}
	return err
}

func (p *program) renderCommand(lib string) error {
	m, err := p.ReadTravel()
	if err != nil {
		return err
	}
	lib = path.Clean(filepath.ToSlash(lib))
	for _, r := range m.Rules {
		if r.From == path.Dir(lib) && r.Takes(path.Base(lib)) {
			src, err := os.ReadFile(filepath.Join(p.Root, lib))
			if err != nil {
				break
			}
			content, err := m.ToTree(r, lib, src)
			if err == nil {
				_, err = p.Out.Write(content)
			}
			return err
		}
	}
	return fmt.Errorf("%s is not in %s, or not in the library", lib, m.File)
}
