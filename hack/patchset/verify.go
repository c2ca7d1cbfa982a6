// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// verifier checks a series in a scratch clone of the tree.
type verifier struct {
	*program // its KUBE_ROOT is the clone
	t        *tree
	s        *series.Series
	base     string
	commits  []string
}

// verify checks the form of the series, its build, or both.
func (p *program) verify(form, build bool) error {
	if build {
		if err := sys.Need("go"); err != nil {
			return err
		}
	}
	q := *p
	q.pick = series.Pick{Parts: series.Everything}
	t, s, err := q.findSeries()
	if err != nil {
		return err
	}
	work, remove, err := sys.Scratch(p.Output)
	if err != nil {
		return err
	}
	defer remove()
	p.Say("Verifying %s in a clone of %s", s.Dir, t.Dir)
	q.kubeRoot, q.Output = filepath.Join(work, "kubernetes"), work
	v := &verifier{program: &q, s: s, base: t.base()}
	if err := p.Git.In(work).Do("clone", "-q", "--shared", "--no-checkout", t.Dir, q.kubeRoot); err != nil {
		return err
	}
	if err := p.Git.In(q.kubeRoot).Do("checkout", "-q", "-B", "scratch", v.base); err != nil {
		return err
	}
	if v.t, err = q.find(); err != nil {
		return err
	}
	// The clone has it if it is checked out in the tree.
	v.t.OK("branch", "-q", "-D", v.t.seriesBranch())
	before, err := v.snapshot()
	if err != nil {
		return err
	}
	if err := q.apply(false); err != nil {
		return err
	}
	if v.commits, err = v.t.Lines("rev-list", "--reverse", v.base+"..HEAD"); err != nil {
		return err
	}
	var steps []func() error
	if form {
		steps = []func() error{v.formatted, v.gitAm, v.forks}
	}
	if build {
		steps = append(steps, v.typeCheck, v.build)
	}
	// Go may add checksums to go.work.sum.
	tidy := func() error { return cmp.Or(v.t.Do("checkout", "-q", "--", "."), v.t.Do("clean", "-fdq")) }
	for _, step := range append(steps, tidy, q.reverse) {
		if err := cmp.Or(step(), context.Cause(p.ctx)); err != nil {
			return err
		}
	}
	if after, err := v.snapshot(); err != nil || after != before {
		return cmp.Or(err, sys.Error("apply and reverse changed the checkout from:", before, "to:", after))
	}
	p.Say("%s is in order on %s", s.Dir, t.Dir)
	return nil
}

// snapshot returns the state of the checkout that apply and reverse must not change.
func (v *verifier) snapshot() (all string, err error) {
	for _, command := range []string{"symbolic-ref HEAD", "rev-parse HEAD", "write-tree", "status --porcelain --ignored", "for-each-ref", "config --local --list"} {
		out, err := v.t.Out(strings.Fields(command)...)
		if err != nil {
			return "", err
		}
		all += command + "\n" + out + "\n"
	}
	return all, nil
}

// problem returns an error with the problems, or nil if there are none.
func problem(problems []string, say string) error {
	if len(problems) == 0 {
		return nil
	}
	return sys.Error(say, problems...)
}

// formatted checks that the stored patches are the formatted commits, and change only files of the release.
func (v *verifier) formatted() error {
	if v.t.Commit("refs/tags/"+v.s.Tag) != v.base || len(v.s.Dropped) > 0 {
		v.Note("skipped: the stored bytes are those of the whole series on %s", v.s.Tag)
		return nil
	}
	isNew := map[string]bool{}
	var problems []string
	for _, q := range v.s.Patches {
		for path := range q.Files {
			isNew[path] = true
		}
	}
	for i, q := range v.s.Patches {
		for path := range q.Hunks {
			if !v.t.OK("cat-file", "-e", v.base+":"+path) {
				problems = append(problems, fmt.Sprintf("%s has a hunk in %s, which is not a file of the release: it belongs in the library or in _src", q.File, path))
			}
		}
		again, err := v.format(v.t.Git, v.commits[i], func(path string) bool { return isNew[path] })
		if err != nil {
			return err
		}
		// Blobs and line numbers of an inherited patch are those of its release.
		if q.Mail != again.Mail && (filepath.Dir(q.File) == v.s.Dir || !series.Same(q.Mail, again.Mail)) {
			problems = append(problems, q.File+" differs from the formatted commit: run \"make refresh\"")
		}
	}
	v.Note("formatting the %d commits again gives the stored patches", len(v.commits))
	return problem(problems, "the patches are not as refresh writes them:")
}

// gitAm applies the mails as a user without this repository would.
func (v *verifier) gitAm() error {
	dir := filepath.Join(v.Output, "mails")
	files, err := v.writeMails(v.t, v.s, dir)
	if err != nil {
		return err
	}
	branch := v.t.branch()
	if err := v.t.Do("checkout", "-q", "-B", "am", v.base); err != nil {
		return err
	}
	if err := v.t.Do(append([]string{"am", "-q", "--committer-date-is-author-date"}, slices.Sorted(maps.Keys(files))...)...); err != nil {
		return fmt.Errorf("plain git am of the mails fails: %w", err)
	}
	trees := func(tip string) string { return v.t.Try("log", "--format=%T", v.base+".."+tip) }
	if trees("am") != trees(branch) {
		return errors.New("git am of the mails makes other trees than apply")
	}
	v.Note("plain git am makes the same trees")
	return cmp.Or(v.t.Do("checkout", "-q", branch), v.t.Do("branch", "-q", "-D", "am"))
}

// forks composes the series on three forks, which have 1 to 100 more lines at the top of, and between the functions of, each Go file
// that the series changes. The result must have the same lines more, and every hunk in its place.
func (v *verifier) forks() error {
	taken := map[string]string{} // the lines of the hunks in each file
	for _, q := range v.s.Patches {
		for _, h := range readHunks(q.Mail) {
			if strings.HasSuffix(h.path, ".go") {
				taken[h.path] += "\n" + strings.Join(h.lines, "\n") + "\n"
			}
		}
	}
	for round := range 3 {
		fork, want := map[string]git.File{}, map[string]git.File{}
		for path := range taken {
			for rev, files := range map[string]map[string]git.File{v.base: fork, v.commits[len(v.commits)-1]: want} {
				content, _, err := v.t.Both("cat-file", "blob", rev+":"+path)
				if err != nil {
					return err
				}
				if files[path], err = v.t.Store("100644", []byte(withMoreLines(content, taken[path], round))); err != nil {
					return err
				}
			}
		}
		x := v.t.With("GIT_INDEX_FILE="+filepath.Join(v.Output, "index"), "GIT_AUTHOR_NAME=fork", "GIT_AUTHOR_EMAIL=fork@localhost")
		if err := cmp.Or(x.Do("read-tree", v.base), x.Stage(fork)); err != nil {
			return err
		}
		base, err := x.CommitIndex(v.base, "A fork")
		if err != nil {
			return err
		}
		commits, err := v.compose(v.t, base, v.s)
		if err != nil {
			return fmt.Errorf("on a fork with more lines: %w", err)
		}
		for path := range want {
			if got := v.t.Try("rev-parse", commits[len(commits)-1]+":"+path); got != want[path].Blob {
				return fmt.Errorf("on a fork with more lines, a hunk of %s is in another place", path)
			}
		}
	}
	v.Note("the hunks are in place on three forks with more lines")
	return nil
}

// withMoreLines adds comment lines to a Go file, after the package clause and before each function, unless a hunk has the line. The
// number of lines depends on that line and the round.
func withMoreLines(content, taken string, round int) string {
	var b strings.Builder
	for line := range strings.Lines(content) {
		more := ""
		if free := !strings.Contains(taken, " "+line) && !strings.Contains(taken, "+"+line) && !strings.Contains(taken, "-"+line); free {
			more = strings.Repeat("// a line of the fork\n", 1+(int(crc32.ChecksumIEEE([]byte(line)))+37*round)%100)
		}
		if strings.HasPrefix(line, "func ") {
			b.WriteString(more)
		}
		b.WriteString(line)
		if strings.HasPrefix(line, "package ") {
			b.WriteString(more)
		}
	}
	return b.String()
}

// typeCheck type-checks, after each patch, kubelet, kube-apiserver, and the packages that the patch changes, with their tests. It
// finds the compiler's errors in seconds. After a patch of the API, go would compile almost all packages again, which takes minutes.
func (v *verifier) typeCheck() error {
	for i, q := range v.s.Patches {
		if err := v.t.Do("checkout", "-q", v.commits[i]); err != nil {
			return err
		}
		names := series.Packages(q)
		v.Say("Type-checking after %s, with the tests of %d packages", q.Name, len(names))
		roots, err := packages.Load(&packages.Config{Context: v.ctx, Mode: packages.LoadAllSyntax, Dir: v.t.Dir, Env: sys.GoEnvironment(v.t.Dir), Tests: true},
			append([]string{"./cmd/kubelet", "./cmd/kube-apiserver"}, names...)...)
		if err != nil {
			return err
		}
		var problems []string
		packages.Visit(roots, nil, func(p *packages.Package) {
			for _, err := range p.Errors {
				problems = append(problems, strings.TrimPrefix(err.Error(), v.t.Dir+"/"))
			}
		})
		slices.Sort(problems)
		if err := problem(slices.Compact(problems), "type errors after "+q.Name+":"); err != nil {
			return err
		}
	}
	return v.t.Do("checkout", "-q", v.t.seriesBranch())
}

// build builds both programs, and runs go vet on the packages that the series changes.
func (v *verifier) build() error {
	v.Say("Building kubelet and kube-apiserver")
	for _, args := range [][]string{{"build", "-o", v.Output + "/", "./cmd/kubelet", "./cmd/kube-apiserver"}, append([]string{"vet"}, series.Packages(v.s.Patches...)...)} {
		if out, err := v.Long(v.ctx, v.t.Dir, sys.GoEnvironment(v.t.Dir), "go", args...); err != nil {
			return sys.Error("go "+args[0]+" fails:", sys.LastLines(out, 60))
		}
	}
	return nil
}
