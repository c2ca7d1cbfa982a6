// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fetch fetches to another directory, with a module cache of its own. It returns the tree, and leaves nothing if it fails.
func (p project) fetch(t *testing.T, env ...string) (tree, out string, err error) {
	t.Helper()
	other := filepath.Join(t.TempDir(), "out put")
	out, err = p.try(append([]string{"KB_OUTPUT_DIR=" + other, "GOMODCACHE=" + modcache(t)}, env...), "hack/patchset.sh", "fetch")
	assertNoScratch(t, other)
	if err != nil {
		assert.NoDirExists(t, filepath.Join(other, version))
	}
	return filepath.Join(other, version, "kubernetes"), out, err
}

// TestFetch: the commit is the same everywhere, and has the files of the modules as they are.
func TestFetch(t *testing.T) {
	p := newProject(t)
	before := p.snapshot(t, p.tree())
	require.Contains(t, p.patchset(t, "fetch"), "already in")
	assert.Equal(t, before, p.snapshot(t, p.tree()))

	tree, out, err := p.fetch(t, "KUBE_VERSION=1.37.1", "TZ=Asia/Tokyo")
	require.NoError(t, err, out)
	assert.Contains(t, out, "an empty module replaces k8s.io/sample-controller@v0.37.1")
	assert.Contains(t, out, "kubernetes.sum has no hashes of kubernetes v1.37.1")
	first := p.git(p.tree(), "rev-parse", "HEAD")
	assert.Equal(t, first, p.git(tree, "rev-parse", "HEAD"), "two fetches make the same commit")
	assert.Equal(t, first, p.git(tree, "rev-parse", version))
	assert.Equal(t, "base", p.git(tree, "symbolic-ref", "--short", "HEAD"))
	assert.Equal(t, "1", p.git(tree, "rev-list", "--count", "--all"))
	assert.Empty(t, p.git(tree, "status", "--porcelain", "--ignored"))
	assert.NoDirExists(t, filepath.Join(tree, "vendor"))
	for file, content := range kubernetes {
		if file != "vendor/modules.txt" {
			assert.Equal(t, content, read(filepath.Join(tree, file)))
			assert.Equal(t, strings.TrimSpace(content), p.git(tree, "show", "HEAD:"+file))
		}
	}
	assert.Equal(t, staging["client-go"]["go.mod"], read(filepath.Join(tree, "staging/src/k8s.io/client-go/go.mod")))
	assert.Equal(t, "module k8s.io/sample-controller\n\ngo 1.22.0\n", read(filepath.Join(tree, "staging/src/k8s.io/sample-controller/go.mod")))
}

// broken returns the environment of a fetch from a proxy that answers with the status below the path.
func broken(path string, status int) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		files := http.FileServer(http.Dir(shared.proxy))
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, path) {
				http.Error(w, "try later", status)
			} else {
				files.ServeHTTP(w, r)
			}
		})
		return []string{"GOPROXY=" + url.URL}
	}
}

// TestFetchChanged: a series applies to a release of which the proxy has only the modules that it changes.
func TestFetchChanged(t *testing.T) {
	p := newProject(t)
	proxy := broken("/k8s.io/api/", http.StatusNotFound)(t)
	_, out, err := p.fetch(t, proxy...)
	require.Error(t, err)
	require.Contains(t, out, "k8s.io/api@v0.37.1 cannot be downloaded")

	env := append(proxy, "KB_OUTPUT_DIR="+t.TempDir(), "GOMODCACHE="+modcache(t), "SERIES=asked")
	run := func(args ...string) {
		out, err := p.try(env, "hack/patchset.sh", args...)
		require.NoError(t, err, "%s: %s", args, out)
	}
	run("fetch", "--changed")
	env[len(env)-1] = "SERIES=all"
	run("apply")
	out, err = p.try(env, "hack/patchset.sh", "tree")
	require.Error(t, err)
	assert.Contains(t, out, "has only the staging modules that the series changes")
	run("reverse")
}

// TestFetchFails: a release that cannot be fetched leaves nothing.
func TestFetchFails(t *testing.T) {
	lacking := func(change func(dir string)) func(t *testing.T) []string {
		return func(t *testing.T) []string {
			dir := filepath.Join(t.TempDir(), "proxy")
			makeProxy(dir, version)
			change(dir)
			return []string{"GOPROXY=file://" + dir}
		}
	}
	for name, tc := range map[string]struct {
		env   func(t *testing.T) []string
		words []string
	}{
		"no version": {func(*testing.T) []string { return []string{"KUBE_VERSION=banana"} }, []string{`"banana" is not a kubernetes release`, "v1.37.1"}},
		"an unknown version": {func(*testing.T) []string { return []string{"KUBE_VERSION=v1.99.1"} },
			[]string{"k8s.io/kubernetes@v1.99.1 cannot be downloaded", "Check that it is a release", "KUBE_ROOT="}},
		"a broken proxy":          {broken("/k8s.io/client-go/", http.StatusBadGateway), []string{"k8s.io/client-go@v0.37.1 cannot be downloaded", "502"}},
		"a proxy without the zip": {broken("/k8s.io/client-go/@v/v0.37.1.zip", http.StatusNotFound), []string{"k8s.io/client-go@v0.37.1 cannot be downloaded", "404"}},
		"a proxy that lacks a module": {lacking(func(dir string) { os.RemoveAll(filepath.Join(dir, "k8s.io/api")) }),
			[]string{"k8s.io/api@v0.37.1 cannot be downloaded"}},
		"a broken zip": {lacking(func(dir string) { write(dir, map[string]string{"k8s.io/api/@v/v0.37.1.zip": "no zip"}) }), []string{"k8s.io/api@v0.37.1", "zip"}},
		"a release without go.work": {lacking(func(dir string) {
			files := maps.Clone(kubernetes)
			delete(files, "go.work")
			module(dir, "k8s.io/kubernetes", version, files)
		}), []string{"go.work", "before 1.30"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			_, out, err := p.fetch(t, tc.env(t)...)
			require.Error(t, err, out)
			for _, word := range tc.words {
				assert.Contains(t, out, word)
			}
		})
	}
}

func serve(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s
}

// TestFetchInterrupted: a signal leaves nothing, and what a killed fetch leaves goes with the next one.
func TestFetchInterrupted(t *testing.T) {
	p := newProject(t)
	reached, release, files := make(chan bool, 100), make(chan bool), http.FileServer(http.Dir(shared.proxy))
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/client-go/@v/v0.37.1.zip") {
			reached <- true
			<-release
		}
		files.ServeHTTP(w, r)
	})
	other := t.TempDir()
	env := []string{"KB_OUTPUT_DIR=" + other, "GOMODCACHE=" + modcache(t)}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		cmd := p.command(append(env, "GOPROXY="+proxy.URL), "hack/patchset.sh", "fetch")
		require.NoError(t, cmd.Start())
		select {
		case <-reached:
		case <-time.After(patience):
			close(release)
			t.Fatal("fetch does not get the module")
		}
		assert.Len(t, scratch(t, other), 1)
		require.NoError(t, cmd.Process.Signal(signal))
		err := cmd.Wait()
		require.Error(t, err)
		if signal != syscall.SIGKILL {
			assert.Equal(t, 130, cmd.ProcessState.ExitCode(), signal)
			assertNoScratch(t, other)
		} else {
			assert.Len(t, scratch(t, other), 1)
		}
		assert.NoDirExists(t, filepath.Join(other, version))
	}
	// A killed one does not end go, which waits for the proxy, and has the lock.
	close(release)
	out, err := p.try(env, "hack/patchset.sh", "fetch")
	require.NoError(t, err, out)
	assert.FileExists(t, filepath.Join(other, version, "kubernetes/go.mod"))
	assertNoScratch(t, other)
}

// TestPins: with hashes, only the sources that are meant are taken, also where no checksum database knows them.
func TestPins(t *testing.T) {
	p := newProject(t)
	before := p.snapshot(t, p.tree())
	p.patchset(t, "fetch", "--pin")
	assert.Equal(t, before, p.snapshot(t, p.tree()))
	sums := filepath.Join(p.dir, "patches/v1.37/kubernetes.sum")
	pinned := read(sums)
	assert.Regexp(t, regexp.MustCompile(`^k8s.io/api v0.37.1 h1:\S{44}\nk8s.io/client-go v0.37.1 h1:\S{44}\nk8s.io/component-base v0.37.1 h1:\S{44}\nk8s.io/kubernetes v1.37.1 h1:\S{44}\n$`), pinned)
	p.patchset(t, "fetch", "--pin")
	assert.Equal(t, pinned, read(sums))

	evil := filepath.Join(t.TempDir(), "proxy")
	makeProxy(evil, version)
	files := maps.Clone(staging["client-go"])
	files["evil.go"] = "package clientgo\n"
	module(evil, "k8s.io/client-go", "v0.37.1", files)
	module(evil, "k8s.io/sample-controller", "v0.37.1", map[string]string{"go.mod": "module k8s.io/sample-controller\n", "evil.go": "package main\n"})
	sampled := filepath.Join(t.TempDir(), "proxy")
	makeProxy(sampled, version)
	copyDir(t, filepath.Join(evil, "k8s.io/sample-controller"), filepath.Join(sampled, "k8s.io/sample-controller"))
	// A database that has nothing needs a key. Nothing is ever signed with it.
	key := append([]byte{1}, make([]byte, ed25519.PublicKeySize)...) // 1 is Ed25519
	hash := sha256.Sum256(append([]byte("test\n"), key...))
	database := fmt.Sprintf("GOSUMDB=test+%x+%s %s", hash[:4], base64.StdEncoding.EncodeToString(key),
		serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) }).URL)

	from := func(proxy string) []string { return []string{"GOPROXY=file://" + proxy} }
	without := func(line string) string { return regexp.MustCompile(`(?m)^`+line+` .*\n`).ReplaceAllString(pinned, "") }
	hashOf := func(name string) string {
		return regexp.MustCompile(`(?m)^` + name + ` .*(h1:.*)$`).FindStringSubmatch(pinned)[1]
	}
	for name, tc := range map[string]struct {
		sums  string
		env   []string
		words []string // of an error, unless they are nil
	}{
		"the right hashes":             {pinned, from(shared.proxy), nil},
		"with comments":                {"# a comment\n\n" + pinned, from(shared.proxy), nil},
		"no database needed":           {pinned, []string{database}, nil},
		"a database that lacks them":   {"", []string{database}, []string{"k8s.io/kubernetes@v1.37.1 cannot be downloaded", "404", "GONOSUMDB='k8s.io/*'"}},
		"not to be asked":              {"", []string{database, "GONOSUMDB=k8s.io/*"}, nil},
		"another module":               {pinned, from(evil), []string{"k8s.io/client-go@v0.37.1 has the wrong hash", "expected  " + hashOf("k8s.io/client-go"), "actual    h1:", sums}},
		"another main module":          {strings.Replace(pinned, hashOf("k8s.io/kubernetes"), hashOf("k8s.io/api"), 1), from(shared.proxy), []string{"k8s.io/kubernetes@v1.37.1 has the wrong hash"}},
		"a module without hash":        {without("k8s.io/api"), from(shared.proxy), []string{"k8s.io/api@v0.37.1 has the wrong hash"}},
		"a sample without hash":        {pinned, from(sampled), nil},
		"a sample that is missing":     {pinned + "k8s.io/sample-controller v0.37.1 " + hashOf("k8s.io/api") + "\n", from(shared.proxy), nil},
		"a sample with the wrong hash": {pinned + "k8s.io/sample-controller v0.37.1 " + hashOf("k8s.io/api") + "\n", from(sampled), []string{"k8s.io/sample-controller@v0.37.1 has the wrong hash"}},
		"no hash":                      {"k8s.io/api v0.37.1\n", from(shared.proxy), []string{sums, `"k8s.io/api v0.37.1" must be`}},
	} {
		write(p.dir, map[string]string{"patches/v1.37/kubernetes.sum": tc.sums})
		tree, out, err := p.fetch(t, tc.env...)
		assert.Equal(t, tc.words == nil, err == nil, "%s: %s", name, out)
		for _, word := range tc.words {
			assert.Contains(t, out, word, name)
		}
		if err == nil {
			assert.Equal(t, p.git(p.tree(), "rev-parse", version), p.git(tree, "rev-parse", "HEAD"), name)
		} else if tc.sums != "" {
			// Pinning is no way around.
			p.refuses(t, append(tc.env, "GOMODCACHE="+modcache(t)), tc.words, "fetch", "--pin")
		}
	}
	// Hashes of another release stay.
	write(p.dir, map[string]string{"patches/v1.37/kubernetes.sum": "k8s.io/kubernetes v1.37.0 h1:x\n"})
	p.patchset(t, "fetch", "--pin")
	assert.Equal(t, without("k8s.io/kubernetes")+"k8s.io/kubernetes v1.37.0 h1:x\nk8s.io/kubernetes v1.37.1 "+hashOf("k8s.io/kubernetes")+"\n", read(sums))
}
