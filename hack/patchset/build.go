// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/go/packages"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/process"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

// build type-checks the tree after each patch, and builds the programs after the last one.
func (v *verifier) build() error {
	unlock, err := v.lock(".build.lock", "build")
	if err != nil {
		return err
	}
	defer unlock()
	run := func(failed, did string, args ...string) error {
		out, took, err := v.long("go "+args[0], v.src, process.GoEnvironment(v.env, v.src), "go", args...)
		if err != nil {
			v.bad(failed+":", console.ErrorLines(out))
			return v.notInOrder()
		}
		v.good("%s (%d s)", did, int(took.Seconds()))
		return nil
	}
	for i, c := range v.commits {
		if err := v.git.Do("checkout", "-q", "-f", "--detach", c.commit); err != nil {
			return err
		}
		v.Say("Type-checking after %s (%d of %d)", c.patch.File, i+1, len(v.commits))
		names, err := v.Packages(v.src, c.patch)
		if err != nil {
			return err
		}
		if err := v.typeCheck(c.patch, names); err != nil {
			return err
		}
	}
	v.Say("Building after all patches")
	if err := run("kubelet and kube-apiserver do not build", "kubelet and kube-apiserver build",
		"build", "-v", "-ldflags", "-s -w", "-o", v.work+"/", "./cmd/kubelet", "./cmd/kube-apiserver"); err != nil {
		return err
	}
	names, err := v.Packages(v.src, v.s.Active...)
	if err != nil {
		return err
	}
	return run("go vet fails", "go vet of the packages that the patches change", append([]string{"vet", "-v"}, names...)...)
}

// typeCheck type-checks kubelet, kube-apiserver, and the packages with their tests. It finds the compiler's errors in seconds.
// After a patch of client-go or of the API, go would compile almost all packages again, which takes minutes.
func (v *verifier) typeCheck(patch *series.Patch, names []string) error {
	start := time.Now()
	roots, err := packages.Load(&packages.Config{
		Context: v.ctx,
		Mode:    packages.LoadAllSyntax,
		Dir:     v.src,
		Env:     process.GoEnvironment(v.env, v.src),
		Tests:   true,
	}, append([]string{"./cmd/kubelet", "./cmd/kube-apiserver"}, names...)...)
	if err != nil {
		return err
	}
	var errs []string
	n := 0
	packages.Visit(roots, nil, func(p *packages.Package) {
		n++
		for _, err := range p.Errors {
			errs = append(errs, strings.TrimPrefix(err.Error(), v.src+"/"))
		}
	})
	if len(errs) > 0 {
		slices.Sort(errs)
		v.bad("type errors after "+patch.File+":", strings.Join(slices.Compact(errs), "\n"))
		return v.notInOrder()
	}
	v.good("%d packages type-check, with the tests of %s (%d s)", n, strings.Join(names, " "), int(time.Since(start).Seconds()))
	return nil
}
