// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/process"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/tree"
)

// verifier is one run of verify.
type verifier struct {
	*program
	t        *tree.Tree
	s        *series.Series
	work     string
	src      string  // the scratch checkout
	git      git.Git // runs git in src
	base     string
	failures int

	commits []composed
}

// bad records a failure, unless an interruption caused it.
func (v *verifier) bad(message string, details ...string) {
	if v.ctx.Err() == nil {
		v.failures++
		fmt.Fprintln(v.ErrOut, "FAIL: "+console.Indent(console.Error(message, details...).Error(), "      "))
	}
}

func (v *verifier) good(format string, args ...any) { v.Note("ok: "+format, args...) }

// verify checks the form of the series, its build, or both.
func (p *program) verify(form, build bool) error {
	if build {
		if err := process.Need("go"); err != nil {
			return err
		}
	}
	if p.pick != (series.Pick{}) || p.vendorLibrary {
		p.Note("SERIES, SKIP and VENDOR are only for apply; verifying all patches")
		p.pick, p.vendorLibrary = series.Pick{}, false
	}
	t, s, err := p.target()
	if err != nil {
		return err
	}
	if err := p.requireRelease(t); err != nil {
		return err
	}
	if build {
		if err := p.checkGo(t); err != nil {
			return err
		}
	}
	p.Say("Verifying series %s on kubernetes %s from %s", s.Name, t.Version, t.Dir)
	work, remove, err := fileutil.Scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	v := &verifier{program: p, t: t, s: s, work: work, src: filepath.Join(work, "kubernetes")}
	steps := []func() error{v.checkout, v.compose}
	if form {
		steps = []func() error{v.patches, v.checkout, v.compose, v.forks, v.gitAm, v.boilerplate, v.applyAndReverse}
	}
	if build {
		steps = append(steps, v.build, v.featureGates)
	}
	for _, step := range steps {
		if err := cmp.Or(step(), context.Cause(p.ctx)); err != nil {
			return err
		}
	}
	if v.failures > 0 {
		return v.notInOrder()
	}
	p.Say("Series %s is in order on kubernetes %s", s.Name, t.Version)
	return nil
}

func (v *verifier) notInOrder() error {
	return fmt.Errorf("series %s is not in order; see the lines with FAIL above", v.s.Name)
}

// checkGo returns an error if no Go is new enough for the tree. The go command decides that, because with GOTOOLCHAIN it may
// download a newer one.
func (p *program) checkGo(t *tree.Tree) error {
	cmd := exec.Command("go", "list", "-m")
	cmd.Dir = t.Dir
	cmd.Env = process.GoEnvironment(os.Environ(), t.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		version, _ := exec.Command("go", "version").Output()
		return console.Error(fmt.Sprintf("%s cannot build %s:", strings.TrimSpace(string(version)), t.Dir), string(out))
	}
	return nil
}

// patches checks the patch files.
func (v *verifier) patches() error {
	list, _ := os.ReadFile(filepath.Join(v.s.Dir, "series"))
	for _, name := range v.s.Dropped {
		commented := slices.ContainsFunc(strings.Split(string(list), "\n"), func(line string) bool {
			return strings.HasPrefix(strings.TrimSpace(line), "#") && strings.Contains(line, name)
		})
		if commented {
			v.Note("%s is commented out in series, and not looked at", name)
		} else {
			v.bad(fmt.Sprintf("%s is not in %s", filepath.Join(v.s.Dir, name), filepath.Join(v.s.Dir, "series")))
		}
	}
	if len(v.s.Active) == 0 {
		v.bad(filepath.Join(v.s.Dir, "series") + " names no patch")
	}
	v.orphans()
	last, cost := 0, ""
	for _, q := range v.s.Active {
		if q.Number <= last {
			v.bad(fmt.Sprintf("%s comes after patch %d in series: the numbers must increase", q.File, last))
		}
		last = q.Number
		if !strings.HasPrefix(q.Mail, "From 0000000000000000000000000000000000000000 ") {
			v.bad(q.File + ": the first line must be from the zero commit (format-patch --zero-commit)")
		}
		if fileutil.HasLine(q.Mail, "-- ") {
			v.bad(q.File + " has a mail signature (format-patch --no-signature)")
		}
		// Git recognizes trailers only in the last paragraph of a message.
		msg, err := v.Message(q.Mail)
		if err != nil {
			return err
		}
		part, err := v.Part(q)
		switch {
		case err != nil:
			v.bad(err.Error())
		case part == series.PartCost:
			cost = q.File
		case cost != "":
			v.bad(fmt.Sprintf("%s, which says \"Series: %s\", comes after %s, which says \"Series: %s\"", q.File, part, cost, series.PartCost))
		}
		for _, key := range []string{"Upstream-Issue", "Differs-From-Upstream", "Depends-On", "Drop-When"} {
			values, err := v.Trailers(msg, key)
			if err != nil {
				return err
			}
			if len(values) == 0 {
				v.bad(fmt.Sprintf("%s has no trailer \"%s: ...\" in the last paragraph of its message", q.File, key))
			}
		}
	}
	if v.failures == 0 {
		v.good("%d patch files are well-formed", len(v.s.Active))
	}
	return nil
}

// orphans reports directories for patches that do not exist.
func (v *verifier) orphans() {
	for dir, dirs := range map[string][]string{
		filepath.Join(v.program.Patches, series.SourceDir): v.All(),
		filepath.Join(v.s.Dir, series.SourceDir):           {v.s.Dir},
	} {
		var names []string
		for _, s := range dirs {
			for _, f := range fileutil.Glob(s, "[0-9]*.patch") {
				if m := series.PatchName.FindStringSubmatch(filepath.Base(f)); m != nil {
					names = append(names, m[2])
				}
			}
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.Name() != series.ReasonsFile && !slices.Contains(names, e.Name()) {
				v.bad(fmt.Sprintf("%s is for a patch %q, which does not exist", filepath.Join(dir, e.Name()), e.Name()))
			}
		}
	}
}

func (v *verifier) checkout() error {
	v.Say("Checking out %s without the series in a scratch directory", v.t.Dir)
	var err error
	if v.git, v.base, err = v.t.Stock(v.src); err != nil {
		return err
	}
	v.git = v.git.With("GIT_CEILING_DIRECTORIES=" + v.work)
	return v.git.Run("reset -q --hard", "checkout -q -B scratch", "tag "+v.t.Version)
}

// compose makes the commits from the sources, and compares the patch files with these commits.
func (v *verifier) compose() error {
	var err error
	if v.commits, err = v.program.compose(v.git, v.base, v.s, v.t); err != nil {
		return err
	}
	release, err := v.git.Files(v.base)
	if err != nil {
		return err
	}
	brings := map[string]bool{}
	before := v.failures
	for _, q := range v.s.Active {
		for path := range q.Files {
			brings[path] = true
		}
		hunks, err := v.Hunks(q)
		if err != nil {
			return err
		}
		for _, path := range slices.Sorted(maps.Keys(hunks)) {
			if _, ok := release[path]; !ok {
				v.bad(fmt.Sprintf("%s has a hunk in %s, which is not a file of the release: a new file belongs in the library or in %s", q.File, path, v.rel(filepath.Join(v.program.Patches, series.SourceDir, q.Name))))
			}
		}
	}
	if v.failures == before {
		v.good("the patches change only files of the release")
	}
	switch {
	case v.t.Version != v.s.Tag:
		v.Note("skipped: the stored bytes are reproducible only on %s", v.s.Tag)
		return nil
	case len(v.s.Dropped) > 0:
		v.Note("skipped: the stored bytes are not reproducible while patches are left out")
		return nil
	}
	before = v.failures
	for _, c := range v.commits {
		again, err := v.stored(v.git, c.commit, brings)
		if err != nil {
			return err
		}
		if again == c.patch.Mail {
			continue
		}
		formatted := filepath.Join(v.work, "formatted")
		if err := fileutil.Write(formatted, []byte(again), 0o666); err != nil {
			return err
		}
		// git diff exits with 1 because there is a difference.
		diff, _ := v.git.Command([]string{"diff", "--no-index", filepath.Join(v.s.Dir, c.patch.File), formatted}).Output()
		v.bad(c.patch.File+" differs from the formatted commit: run \"make refresh\"", console.FirstLines(string(diff), 40))
	}
	if v.failures == before {
		v.good("formatting the commits again gives the stored bytes")
	}
	return nil
}

// gitAm applies the mails as a user without this repository would.
func (v *verifier) gitAm() error {
	v.Say("Applying the exported mails with plain git am")
	mails, err := writeMails(v.commits, filepath.Join(v.work, "mails"))
	if err != nil {
		return err
	}
	for i, c := range v.commits {
		if err := v.git.Do("am", "-q", "--committer-date-is-author-date", mails[i]); err != nil {
			v.bad(c.patch.File+" does not apply with plain git am", git.ExplainAm(err.Error()), err.Error())
			return v.notInOrder()
		}
		if !v.sameTree("HEAD", c.commit) {
			v.bad(fmt.Sprintf("git am of %s makes another tree than its sources", c.patch.File))
		}
	}
	v.good("%d patches apply, and make the same trees as their sources", len(v.commits))
	return nil
}

func (v *verifier) sameTree(a, b string) bool {
	x, y := v.git.Try("rev-parse", a+"^{tree}"), v.git.Try("rev-parse", b+"^{tree}")
	return x != "" && x == y
}

// script runs one of upstream's scripts, unless there is a reason to skip it or the tree lacks it.
func (v *verifier) script(name, why string, env []string, args ...string) error {
	if !fileutil.Exists(filepath.Join(v.src, name)) {
		why = "this tree has none"
	}
	if why != "" {
		v.Note("skipped: upstream's %s: %s", name, why)
		return nil
	}
	out, took, err := v.long(filepath.Base(name), v.src, env, "bash", append([]string{name}, args...)...)
	if err != nil {
		v.bad(fmt.Sprintf("upstream's %s fails:", name), console.LastLines(out, 40))
	} else {
		v.good("upstream's %s passes (%d s)", name, int(took.Seconds()))
	}
	return nil
}

func (v *verifier) boilerplate() error {
	const python = "hack/boilerplate/boilerplate.py"
	why := ""
	if process.Need("python3") != nil {
		why = "it needs python3 on PATH (on Debian or Ubuntu: apt-get install python3)"
	}
	// New files are the same for all releases.
	if header, _ := os.ReadFile(filepath.Join(v.src, "hack/boilerplate/boilerplate.go.txt")); strings.Contains(string(header), "Copyright YEAR ") {
		why = "it requires a year in the header, and releases from v1.35 on forbid it in new files"
	}
	// Without arguments, the script skips a tree below a directory "_output".
	files, err := v.git.Lines("diff", "--name-only", "--diff-filter=d", "--no-renames", v.base, "HEAD")
	if err != nil {
		return err
	}
	// In a tree from the module proxy no file is executable.
	if fileutil.Exists(filepath.Join(v.src, python)) {
		if err := os.Chmod(filepath.Join(v.src, python), 0o755); err != nil {
			return err
		}
		defer v.git.OK("checkout", "-q", "--", "hack")
	}
	return v.script("hack/verify-boilerplate.sh", why, v.env, files...)
}

func (v *verifier) featureGates() error {
	why := ""
	if len(v.s.Dropped) > 0 {
		why = "the generated lists are those of the whole series, and patches are left out"
	}
	// Use the installed Go and its caches. By default the script downloads a Go and uses its own caches.
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	cache, modcache, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	env := slices.DeleteFunc(process.GoEnvironment(v.env, v.src), func(kv string) bool {
		return strings.HasPrefix(kv, "GOWORK=") || strings.HasPrefix(kv, "GO111MODULE=")
	})
	return v.script("hack/verify-featuregates.sh", why, append(env, "FORCE_HOST_GO=y", "GOCACHE="+cache, "GOMODCACHE="+modcache))
}

// snapshot returns the state of the checkout that apply and reverse must not change.
func (v *verifier) snapshot() (string, error) {
	var b strings.Builder
	for _, args := range [][]string{
		{"symbolic-ref", "HEAD"}, {"rev-parse", "HEAD", "HEAD^{tree}"}, {"write-tree"}, {"status", "--porcelain", "--ignored"},
		{"for-each-ref"}, {"config", "--local", "--list"}, {"stash", "list"},
	} {
		out, err := v.git.Out(args...)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s\n%s\n", strings.Join(args, " "), out)
	}
	return b.String(), nil
}

func (v *verifier) applyAndReverse() error {
	v.Say("Applying and reversing")
	if err := v.git.Do("reset", "-q", "--hard", v.base); err != nil {
		return err
	}
	before, err := v.snapshot()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	q := *v.program
	q.kubeRoot, q.kubeVersion, q.seriesName = v.src, v.t.Version, v.s.Name
	q.Out, q.ErrOut = &said, &said
	if err := q.apply(false); err != nil {
		v.bad("apply fails", said.String(), err.Error())
		return nil
	}
	made, err := v.git.Lines("rev-list", "--reverse", v.base+"..HEAD")
	if err != nil {
		return err
	}
	for i, c := range v.commits {
		if i >= len(made) || !v.sameTree(made[i], c.commit) {
			v.bad(fmt.Sprintf("apply makes another tree for %s than git am", c.patch.File))
		}
	}
	if err := q.reverse(false); err != nil {
		v.bad("reverse fails", said.String(), err.Error())
		return nil
	}
	after, err := v.snapshot()
	if err != nil {
		return err
	}
	if before != after {
		v.bad("reverse did not restore everything; before and after:", before, after)
	} else {
		v.good("apply makes the same trees; reverse restores the tree, the branch, the index and the configuration")
	}
	return nil
}
