// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExport: git am knows nothing of this repository, and makes the same trees.
func TestExport(t *testing.T) {
	for _, tc := range []struct {
		name  string
		kind  func(project, *testing.T) project
		env   []string
		mails []string
	}{
		{"clone", project.clone, nil, []string{"0001-rules", "0002-decide", "0003-late"}},
		{"worktree", project.worktree, nil, []string{"0001-rules", "0002-decide", "0003-late"}},
		{"SKIP", project.clone, []string{"SKIP=decide"}, []string{"0001-rules", "0003-late"}},
		{"SERIES", project.clone, []string{"SERIES=cost"}, []string{"0003-late"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := tc.kind(newProject(t), t)
			edit(t, p.series("late.patch"), "Series: core", "Series: cost")
			stock := p.git(p.root, "rev-parse", "HEAD")
			dir := filepath.Join(p.dir, "_output/series/v1.37")
			write(dir, map[string]string{"0009-old.patch": "old", "0002-other.patch": "old"})
			before := p.snapshot(t, p.root)
			assert.Contains(t, p.with(t, tc.env, "make", "series"), fmt.Sprintf("%d mails", len(tc.mails)))
			assert.Equal(t, before, p.snapshot(t, p.root))
			mails, err := filepath.Glob(filepath.Join(dir, "*"))
			require.NoError(t, err)
			var names []string
			for _, mail := range mails {
				names = append(names, strings.TrimSuffix(filepath.Base(mail), ".patch"))
				text := read(mail)
				assert.True(t, strings.HasPrefix(text, "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: "), mail)
				assert.Contains(t, text, "\nDrop-When: fixed upstream\n\ndiff --git ")
				assert.NotContains(t, text, "Signed-off-by")
			}
			assert.Equal(t, tc.mails, names)

			other := filepath.Join(t.TempDir(), "tree")
			p.git(p.dir, "clone", "-q", filepath.Join(p.dir, "_output", version, "kubernetes"), other)
			p.git(other, append([]string{"am", "-q"}, mails...)...)
			p.with(t, tc.env, "hack/patchset.sh", "apply")
			for i := range mails {
				rev := fmt.Sprintf("HEAD~%d^{tree}", i)
				assert.Equal(t, p.git(other, "rev-parse", rev), p.git(p.root, "rev-parse", rev))
			}
			assert.Equal(t, stock, p.git(p.root, "rev-parse", fmt.Sprintf("HEAD~%d", len(mails))))
			// While the series is applied, and edited, export writes the patches.
			p.commit(p.root, "mine", "A <a@example.com>", "none", map[string]string{kubelet: "package kubelet\n"})
			text := read(mails[0])
			p.with(t, tc.env, "hack/patchset.sh", "export")
			assert.Equal(t, text, read(mails[0]))
		})
	}
}

// TestDist: the archive is the same to the byte wherever and whenever it is made.
func TestDist(t *testing.T) {
	p := newProject(t)
	const name = "kubelet-backoff-v0.1.0"
	require.NoError(t, os.Symlink("backoff/rules.go", filepath.Join(p.dir, "link.go")))
	p.git(p.dir, "init", "-q")
	p.git(p.dir, "add", "-A", ".")
	p.git(p.dir, "commit", "-q", "-m", "all")
	for _, tag := range []string{"agent/v0.1.0", "v0.1.0"} {
		p.git(p.dir, "tag", tag)
	}
	p.ok(t, "make", "dist")
	archive := read(filepath.Join(p.dir, "_output/dist", name+".tar.gz"))
	assert.Equal(t, fmt.Sprintf("%x  %s.tar.gz\n", sha256.Sum256([]byte(archive)), name), read(filepath.Join(p.dir, "_output/dist/SHA256SUMS")))

	// Elsewhere, with other settings and a part of the series applied.
	q := p
	q.dir = filepath.Join(t.TempDir(), "elsewhere")
	p.git(p.dir, "clone", "-q", p.dir, q.dir)
	env := []string{"TZ=Asia/Tokyo", "SKIP=late", "SERIES=core"}
	q.with(t, env, "hack/patchset.sh", "apply")
	q.with(t, append(env, "KUBE_VERSION=v1.37.2", "KUBE_ROOT=/none"), "bash", "-c", "umask 077; make dist")
	assert.True(t, archive == read(filepath.Join(q.dir, "_output/dist", name+".tar.gz")), "the same bytes")

	zipped, err := gzip.NewReader(strings.NewReader(archive))
	require.NoError(t, err)
	files := map[string]string{}
	committed := p.git(p.dir, "log", "-1", "--format=%ct")
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = fmt.Sprintf("%o %s%s", h.Mode, h.Linkname, content)
		assert.Equal(t, committed, fmt.Sprint(h.ModTime.Unix()), h.Name)
	}
	assert.Equal(t, "644 "+library["backoff/rules.go"], files[name+"/backoff/rules.go"])
	assert.True(t, strings.HasPrefix(files[name+"/hack/patchset.sh"], "755 #!"))
	assert.Equal(t, "777 backoff/rules.go", files[name+"/link.go"])
	for _, mail := range []string{"0001-rules.patch", "0002-decide.patch", "0003-late.patch"} {
		assert.Equal(t, "644 "+read(filepath.Join(p.dir, "_output/series/v1.37", mail)), files[name+"/series/v1.37/"+mail])
	}
	for file := range files {
		assert.NotContains(t, file, "_output")
	}

	// Without a tag, the commit is the name.
	p.git(p.dir, "tag", "-d", "v0.1.0")
	p.ok(t, "hack/dist.sh")
	assert.FileExists(t, filepath.Join(p.dir, "_output/dist/kubelet-backoff-"+p.git(p.dir, "rev-parse", "--short=12", "HEAD")+".tar.gz"))
	// What is not committed, or not in the tree of the release.
	p.commit(p.tree(), "mine", "A <a@example.com>", "none", map[string]string{"new.txt": "1"})
	p.fails(t, nil, []string{"has another commit than v1.37.1 checked out"}, "hack/dist.sh")
	write(p.dir, map[string]string{"new.txt": "1"})
	p.fails(t, nil, []string{"not committed", "new.txt"}, "make", "dist")
	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, ".git")))
	p.fails(t, nil, []string{"not a git repository"}, "make", "dist")
}

// TestDistKubelet: the kubelet of a release, with the list that the pinned tool makes of it.
func TestDistKubelet(t *testing.T) {
	p := newProject(t)
	const tool = "github.com/CycloneDX/cyclonedx-gomod"
	write(p.dir, map[string]string{
		"hack/tools/go.mod":                           "module tools\n\ngo 1.24\n\ntool " + tool + "/cmd/cyclonedx-gomod\n\nrequire " + tool + " v1.0.0\n\nreplace " + tool + " => ./hack/tools/fake\n",
		"hack/tools/fake/go.mod":                      "module " + tool + "\n\ngo 1.24\n",
		"hack/tools/fake/cmd/cyclonedx-gomod/main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() {\n\tif err := os.WriteFile(os.Args[8], fmt.Append(nil, os.Args[1:]), 0o644); err != nil {\n\t\tpanic(err)\n\t}\n}\n",
	})
	p.git(p.dir, "init", "-q")
	p.git(p.dir, "add", "-A", ".")
	p.git(p.dir, "commit", "-q", "-m", "all")
	// A part of the series in the environment does not make another kubelet.
	p.with(t, []string{"SKIP=late", "SERIES=core", "KUBE_ROOT=/none"}, "hack/dist.sh", "--kubelet")
	file := filepath.Join(p.dir, "_output/dist/kubelet-v1.37.1+kubelet-backoff-"+runtime.GOOS+"-"+runtime.GOARCH)
	assert.Equal(t, "Kubernetes v1.37.1+kubelet-backoff 1 37 clean\npatched 1\n", p.ok(t, file))
	assert.Equal(t, "[bin -json -noserial -notimestamp -version v1.37.1+kubelet-backoff -output "+file+".cdx.json "+file+"]", read(file+".cdx.json"))
	assert.Contains(t, read(filepath.Join(p.tree(), kubelet)), "return false", "the patch late")
	p.fails(t, nil, []string{`unknown argument "--kubelets"`}, "hack/dist.sh", "--kubelets")
}
