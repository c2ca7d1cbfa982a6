// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"

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
	v := &verifier{program: &q, s: s, base: t.current().Base}
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
		steps = []func() error{v.formatted, v.gitAm, v.placed}
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

// formatted checks that the stored patches are the formatted commits.
func (v *verifier) formatted() error {
	if v.t.Commit("refs/tags/"+v.s.Tag) != v.base || len(v.s.Dropped) > 0 {
		v.Note("skipped: the stored bytes are those of the whole series on %s", v.s.Tag)
		return nil
	}
	var problems []string
	for i, q := range v.s.Patches {
		again, err := v.t.format(v.base, v.commits[i])
		if err != nil {
			return err
		}
		// Blobs and line numbers of an inherited patch are those of its release.
		if q.Mail != again && (filepath.Dir(q.File) == v.s.Dir || !series.Same(q.Mail, again)) {
			problems = append(problems, q.File+" differs from the formatted commit: run \"make refresh\"")
		}
	}
	v.Note("formatting the %d commits again gives the stored patches", len(v.commits))
	return sys.Problem(problems, "the patches are not as refresh writes them:")
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
	if err := v.t.Do(append([]string{"am", "-q", "--committer-date-is-author-date"}, files...)...); err != nil {
		return fmt.Errorf("plain git am of the mails fails: %w", err)
	}
	trees := func(tip string) string { return v.t.Try("log", "--format=%T", v.base+".."+tip) }
	if trees("am") != trees(branch) {
		return errors.New("git am of the mails makes other trees than apply")
	}
	v.Note("plain git am makes the same trees")
	return cmp.Or(v.t.Do("checkout", "-q", branch), v.t.Do("branch", "-q", "-D", "am"))
}

// placed checks that the old lines of each hunk fit no other place of its file. So git finds that place in a fork with more lines too. The
// same change of several places has as many hunks.
func (v *verifier) placed() error {
	var problems []string
	for i, q := range v.s.Patches {
		for path, hunks := range readHunks(q.Mail) {
			before, _, _ := v.t.Both("show", v.commits[i]+"^:"+path)
			same := map[string]int{}
			for _, h := range hunks {
				same[h.old()]++
			}
			for _, h := range hunks {
				if n := h.fits(before); n > same[h.old()] {
					problems = append(problems, fmt.Sprintf("%s: a hunk of %s, in %q, fits %d places: give it more lines", q.File, path, h.function, n))
				}
			}
		}
	}
	v.Note("each hunk fits one place")
	return sys.Problem(problems, "git may put hunks in other places of a fork:")
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
		if err := sys.Problem(problems, "type errors after "+q.Name+":"); err != nil {
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
