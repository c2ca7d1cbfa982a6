// SPDX-License-Identifier: Apache-2.0

// Patchset gets the source tree of a kubernetes release, applies a patch series to it and reverses it, and copies edits
// between the tree and this repository.
//
// Words used throughout:
//
//	tree     a kubernetes source tree: KUBE_ROOT, or _output/VERSION/kubernetes as fetch makes it
//	series   a directory under patches/: BASE, series, the patches it names, and its versions of files in _src
//	branch   kubelet-backoff-<series>: the applied series, one commit per patch
//	source   the place of a new file of a patch: the library, or patches/_src
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
	"strconv"
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

// program has the environment and the settings of a command.
type program struct {
	ctx context.Context
	console.Log
	series.Store
	env    []string // for git, without the user's git settings
	output string   // _output

	kubeRoot, kubeVersion string
	pick                  series.Pick // which patches to apply
	vendorLibrary         bool        // apply with the library in vendor, instead of copies
	seriesName            string      // the series to use, regardless of the tree's release
	checked               string      // the identity of the series when a script began the check that it records
}

func newProgram(ctx context.Context) (*program, error) {
	p := &program{
		ctx: ctx, Log: console.Log{Out: os.Stdout, ErrOut: os.Stderr}, Store: series.Store{Root: os.Getenv("KB_ROOT")},
		kubeRoot: os.Getenv("KUBE_ROOT"), kubeVersion: os.Getenv("KUBE_VERSION"),
		pick: series.Pick{Parts: os.Getenv("SERIES"), Skip: os.Getenv("SKIP")}, seriesName: os.Getenv("KB_SERIES"), checked: os.Getenv("KB_CHECKED"),
	}
	var err error
	if v := os.Getenv("VENDOR"); v != "" {
		if p.vendorLibrary, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("VENDOR=%q must be 1 or 0", v)
		}
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

// interruption is the error of a command that a signal interrupted.
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
		// Under nohup, SIGHUP stays ignored.
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
	// The interruption is the cause of any other error.
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

// lock takes an exclusive lock on a file in the output directory. If it has to wait, it says for what.
func (p *program) lock(name, what string) (unlock func(), err error) {
	return fileutil.Lock(p.ctx, filepath.Join(p.output, name), func() { p.Say("Waiting for another %s in %s to end", what, p.output) })
}

// long runs a command and reports its progress.
func (p *program) long(label, dir string, env []string, name string, args ...string) (string, time.Duration, error) {
	return process.Long(p.ctx, p.Log, label, dir, env, name, args...)
}

// needGit finds git.
func (p *program) needGit() (err error) {
	p.env, err = git.Environment()
	p.Git = git.New(p.ctx, p.env)
	return err
}

// loadSeries reads the patches of a series that SERIES and SKIP leave.
func (p *program) loadSeries(dir string) (*series.Series, error) { return p.Load(dir, p.pick) }

// uninterrupted returns a copy of the program that signals do not stop, for steps that must finish.
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
		Short:         "Apply the patch series to a kubernetes tree, and maintain it",
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

The modules come from the Go module proxy that "go env GOPROXY" names: k8s.io/kubernetes and every staging module. The
tree has the layout of the git repository, and one commit tagged VERSION. The commit is the same on every machine.
The downloads must have the hashes in patches/<series>/kubernetes.sum, if that file lists the release. Fetch does not
change an existing tree. An interrupted run leaves nothing behind.`, cobra.MaximumNArgs(1),
		func(_ *cobra.Command, args []string) error { return p.fetchCommand(args) })
	add(root, "pin VERSION", "write the hashes of a release into its series",
		`Pin downloads the modules of a kubernetes release and adds their hashes to kubernetes.sum of the series that fits. From
then on fetch compares its downloads with them. Pin does not replace hashes.`, cobra.ExactArgs(1),
		func(_ *cobra.Command, args []string) error { return p.pin(args[0]) })

	var keep bool
	apply := add(root, "apply [--keep]", "apply the series to the tree, on a branch",
		`Apply applies the series that fits the tree to a new branch, kubelet-backoff-<series>, one commit per patch. The tree is
KUBE_ROOT (a git checkout or a plain source tree), or else _output/KUBE_VERSION/kubernetes, fetched when missing. When
anything fails, apply restores the tree bit for bit. "patchset reverse" undoes it. If apply or reverse is killed, the next
apply or reverse first restores the tree.

SERIES=core in the environment applies only the patches whose message says "Series: core". SKIP="4 6" or
SKIP="config images" leaves these patches out, as if their lines in "series" were commented out.

VENDOR=1 adds a commit that puts the library into vendor, as a module at the version of the commit that is checked out here,
and removes the copies of its packages. The tree must have a vendor folder.`, none,
		func(*cobra.Command, []string) error { return p.alone(false, func(bool) error { return p.apply(keep) }) })
	apply.Flags().BoolVar(&keep, "keep", false, "accept a series branch that was edited after it was made")

	var force bool
	reverse := add(root, "reverse [--force]", "remove the series from the tree",
		`Reverse undoes apply: it checks out the branch or commit that was checked out before, and deletes the series branch. It
removes nothing else. It refuses if that would lose work: uncommitted changes, or commits that no patch file holds.`, none,
		func(*cobra.Command, []string) error { return p.alone(force, p.reverse) })
	reverse.Flags().BoolVar(&force, "force", false, "discard uncommitted changes and such commits")

	var r refreshOptions
	refresh := add(root, "refresh [--base COMMIT] [--library-wins] [--check]", "synchronize the tree with its sources",
		`Refresh copies edits of the series branch to their sources, and edits of the sources to the branch: files of the library
belong to the library, other new files to patches/_src, changes of upstream's files and messages to the patches. If a file
was edited on both sides, refresh prints the conflict and writes nothing. Messages, authors and dates of the commits do not
change. Running refresh twice changes nothing. If it was killed, run it again.`, none,
		func(*cobra.Command, []string) error { return p.alone(false, func(bool) error { return p.refresh(r) }) })
	refresh.Flags().StringVar(&r.base, "base", "", "the branch was rebased and now starts at this `commit`")
	refresh.Flags().BoolVar(&r.sourceWins, "library-wins", false, "resolve conflicts in favour of the library and patches/_src")
	refresh.Flags().BoolVar(&r.check, "check", false, "write nothing; fail if there is something to refresh")

	add(root, "carry VERSION", "start a series for another minor version",
		`Carry starts a series for a minor version that has none. It copies the patches of the next newer series, or of the newest,
and commits them to the branch of the new series, on the release that they were made for. It then prints the git rebase
that moves them to the new release, and the commands that write the new series.

If a file of patches/_src does not fit the new release, add patches/<series>/_src/PATCH/PATH, and a line to
patches/<series>/_src/REASONS: "PATCH/PATH: why". This version replaces the file in this release and in older ones that
have no version of their own.`, cobra.ExactArgs(1),
		func(_ *cobra.Command, args []string) error {
			return p.alone(false, func(bool) error { return p.carry(args[0]) })
		})

	var noBuild bool
	verify := add(root, "verify [--no-build]", "verify the series",
		`Verify finds the tree and its series as apply does, and checks in a scratch checkout that:

  - each patch ends with its five trailers and changes only files that the release has, and formatting its commit again
    gives the stored bytes
  - apply, and plain "git am" of the mails that export writes, make the same trees commit by commit, and reverse restores
    everything
  - upstream's hack/verify-boilerplate.sh passes for the files that the series changes, and hack/verify-featuregates.sh
    passes (not with --no-build, because it compiles)
  - after each patch, kubelet, kube-apiserver and the packages that the patch changes type-check, including tests;
    after the last one both programs build, and all these packages pass go vet (not with --no-build)`, none,
		func(*cobra.Command, []string) error { return p.verify(true, !noBuild) })
	verify.Flags().BoolVar(&noBuild, "no-build", false, "compile nothing")

	var all struct {
		only, checks []string
	}
	verifyAll := add(root, "verify-all [--only LIST] [--check LIST]", "verify all series",
		`Verify-all runs these checks of each series on the release that it was made on. It runs a check for all series, newest
first, before the next check:

  patches  verify --no-build
  tests    hack/test-patched.sh -race
  build    what verify compiles
  others   the series applies to the other patch versions that BASE names ("applies: v1.37.0 v1.37.2"), and reverses
  vendor   the tests, and a build of kubelet, with the library in vendor; for the series whose BASE says "vendor: yes"

A series that fails does not stop the others. Results are stored in _output/releases, with the logs. A check that passed
does not run again until the series changes, so that an interrupted run continues where it stopped.`, none,
		func(c *cobra.Command, _ []string) error {
			for name, list := range map[string][]string{"only": all.only, "check": all.checks} {
				if c.Flags().Changed(name) && len(list) == 0 {
					return fmt.Errorf("--%s is empty; leave it out for all", name)
				}
			}
			return p.verifyAll(all.only, all.checks)
		})
	verifyAll.Flags().StringSliceVar(&all.only, "only", nil, "the series to check, such as v1.36,v1.35, or newest")
	verifyAll.Flags().StringSliceVar(&all.checks, "check", nil, "the checks to run, such as patches,tests")
	var writeMatrix bool
	matrix := add(root, "matrix [--write]", "print the patches and the check results of each release",
		`Matrix prints in Markdown the results of the checks of each series, which verify-all and the scripts that need a node
store in _output/releases, and which release has which patch.`, none,
		func(*cobra.Command, []string) error { return p.matrixCommand(writeMatrix) })
	matrix.Flags().BoolVar(&writeMatrix, "write", false, "write it to docs/results/releases.md, and a summary to "+patchesPage)
	var writeDeviations bool
	deviations := add(root, "deviations [--write]", "print how each release differs from upstream",
		`Deviations prints in Markdown what each patch changes and why, from its message.`, none,
		func(*cobra.Command, []string) error {
			return p.page(writeDeviations, "docs/deviations.md", p.deviations)
		})
	deviations.Flags().BoolVar(&writeDeviations, "write", false, "write it to docs/deviations.md")

	add(root, "export", "write the series as mails for git am",
		`Export writes the series that fits the tree to _output/series/<series>: complete mails, which plain "git am" applies
in any checkout, without this repository.`, none,
		func(*cobra.Command, []string) error { return p.export() })
	add(root, "dist", "make a release archive",
		`Dist writes to _output/dist an archive of the commit that is checked out, with the mails of every series, and SHA256SUMS.
The same commit gives the same bytes everywhere and at any time.`, none,
		func(*cobra.Command, []string) error { return p.dist() })
	var write bool
	stat := add(root, "stat [--write]", "count the changed lines of upstream's files",
		`Stat prints a table in Markdown: how many lines of upstream's files each patch adds and removes. The series
is that of KUBE_VERSION, or the newest one. --write always takes the newest one.`, none, func(*cobra.Command, []string) error { return p.statCommand(write) })
	stat.Flags().BoolVar(&write, "write", false, "write it to "+patchesPage)
	add(root, "render FILE", "print a file of the library as it is in the tree", "", cobra.ExactArgs(1),
		func(_ *cobra.Command, args []string) error { return p.renderCommand(args[0]) })
	add(root, "clean", "remove _output, except trees with unsaved work",
		`Clean removes _output. It keeps and lists source trees that contain work: uncommitted changes, new files, stashes, and
commits that are in no patch file.`, none,
		func(*cobra.Command, []string) error { return p.clean() })

	// For the scripts.
	var failed bool
	record := add(root, "record CHECK [DETAILS]", "store the result of a check of the tree's series", "", cobra.RangeArgs(1, 2),
		func(_ *cobra.Command, args []string) error {
			return p.record(args[0], !failed, strings.Join(args[1:], ""))
		})
	record.Flags().BoolVar(&failed, "failed", false, "it failed")
	record.Hidden = true
	add(root, "checked", "print the identity of the tree's series", "", none,
		func(*cobra.Command, []string) error { return p.checkedCommand() }).Hidden = true
	var fetch, applied bool
	locate := add(root, "tree", "print the tree as variables for a shell", "", none,
		func(*cobra.Command, []string) error { return p.treeCommand(fetch, applied) })
	locate.Hidden = true
	locate.Flags().BoolVar(&fetch, "fetch", false, "fetch the tree if it is missing")
	locate.Flags().BoolVar(&applied, "applied", false, "fail unless the series is applied and checked out")
	add(root, "checkout DIR", "make a checkout of the tree without the series", "", cobra.ExactArgs(1),
		func(_ *cobra.Command, args []string) error { return p.checkoutCommand(args[0]) })
	add(root, "packages", "print the Go packages that the series changes", "", none,
		func(*cobra.Command, []string) error { return p.packagesCommand() })
	return root
}

// alone runs a step that changes a tree, while no other such step runs. It first restores the tree if such a step was killed.
// With force, it discards edits that prevent that. Then it runs the step without force, which may concern other edits.
func (p *program) alone(force bool, run func(force bool) error) error {
	unlock, err := p.lock(".tree.lock", "apply, reverse or refresh")
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.recover(&force); err != nil {
		return err
	}
	return run(force)
}

// seriesFor returns the directory of the series for the minor version of a release.
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
		return "", console.Error(fmt.Sprintf("no series fits kubernetes %s. The series in %s are:", version, p.Patches), p.Describe(),
			"Choose one of these releases with KUBE_VERSION, or try a series on another release with KB_SERIES=NAME.")
	}
	return dir, nil
}

// pickSeries loads the series for a release. BASE lists only the releases that are tested, so the series may fit others too.
func (p *program) pickSeries(version string) (*series.Series, error) {
	dir, err := p.seriesFor(version)
	if err != nil {
		return nil, err
	}
	s, err := p.loadSeries(dir)
	if err == nil && p.seriesName == "" && version != s.Tag && !slices.Contains(s.Applies, version) {
		p.Note("%s is not one of the releases on which %s is tested (%s); trying it anyway", version, s.Name, strings.Join(append([]string{s.Tag}, s.Applies...), " "))
	}
	return s, err
}

func (p *program) packagesCommand() error {
	out := p.Out
	p.Out = p.ErrOut
	t, _, s, err := p.applied()
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
	m, err := p.ReadMirror()
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
