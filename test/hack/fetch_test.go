// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFetch(t *testing.T) {
	p := newProject(t)
	first := p.git(p.tree(), "rev-parse", "HEAD")
	require.Contains(t, p.ok(t, "hack/patchset.sh", "fetch"), "already in")

	other := filepath.Join(t.TempDir(), "out put")
	out, err := p.try([]string{"KB_OUTPUT_DIR=" + other}, "hack/patchset.sh", "fetch", "1.37.1")
	require.NoError(t, err, out)
	tree := filepath.Join(other, version, "kubernetes")
	assert.Equal(t, first, p.git(tree, "rev-parse", "HEAD"), "two fetches make the same commit")
	assert.Equal(t, first, p.git(tree, "rev-parse", version))
	assert.Empty(t, p.git(tree, "status", "--porcelain", "--ignored"))
	assert.NoDirExists(t, filepath.Join(tree, "vendor"))
	assert.FileExists(t, filepath.Join(tree, "staging/src/k8s.io/client-go/util/flowcontrol/backoff.go"))
	assert.Equal(t, "one\r\ntwo\r\n", read(filepath.Join(tree, "pkg/kubelet/testdata/crlf.txt")))
	assert.Equal(t, "module k8s.io/sample-controller\n\ngo 1.22.0\n", read(filepath.Join(tree, "staging/src/k8s.io/sample-controller/go.mod")))
	assert.Contains(t, out, "sample-controller@v0.37.1 does not exist")
	assertNoScratch(t, other)
}

func TestFetchWrongVersion(t *testing.T) {
	p := newProject(t)
	p.fails(t, nil, []string{`"banana" is not a kubernetes release`, "v1.37.1"}, "hack/patchset.sh", "fetch", "banana")
	p.fails(t, nil, []string{"kubernetes v1.99.1 cannot be downloaded", "k8s.io/kubernetes@v1.99.1", "KUBE_ROOT"}, "hack/patchset.sh", "fetch", "v1.99.1")
	assert.NoDirExists(t, filepath.Join(p.dir, "_output/v1.99.1"))
	assertNoScratch(t, filepath.Join(p.dir, "_output"))
}

// proxyServer serves the proxy directory over HTTP, except the requests that intercept answers.
func proxyServer(t *testing.T, intercept func(http.ResponseWriter, *http.Request) bool) string {
	files := http.FileServer(http.Dir(shared.proxy))
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !intercept(w, r) {
			files.ServeHTTP(w, r)
		}
	}))
}

func serve(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestFetchZipOnly(t *testing.T) {
	p := newProject(t)
	url := proxyServer(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/k8s.io/client-go/") && !strings.HasSuffix(r.URL.Path, ".zip") {
			http.Error(w, "not available", http.StatusForbidden)
			return true
		}
		return false
	})
	other := t.TempDir()
	out, err := p.try([]string{"KB_OUTPUT_DIR=" + other, "GOPROXY=" + url + ",off", "GOMODCACHE=" + modcache(t)}, "hack/patchset.sh", "fetch", version)
	require.NoError(t, err, out)
	assert.Contains(t, out, "k8s.io/client-go@v0.37.1: the proxy has only its zip")
	assert.Equal(t, p.git(p.tree(), "rev-parse", "HEAD"), p.git(filepath.Join(other, version, "kubernetes"), "rev-parse", "HEAD"))
}

func TestFetchBrokenProxy(t *testing.T) {
	p := newProject(t)
	url := proxyServer(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/k8s.io/client-go/") {
			http.Error(w, "try later", http.StatusBadGateway)
			return true
		}
		return false
	})
	other := t.TempDir()
	p.fails(t, []string{"KB_OUTPUT_DIR=" + other, "GOPROXY=" + url, "GOMODCACHE=" + modcache(t)},
		[]string{"k8s.io/client-go@v0.37.1 cannot be downloaded", "502"}, "hack/patchset.sh", "fetch", version)
	assert.NoDirExists(t, filepath.Join(other, version))
	assertNoScratch(t, other)
}

// TestFetchChecksums: only what the checksum database says it does not have is taken unchecked.
func TestFetchChecksums(t *testing.T) {
	p := newProject(t)
	// A database of our own needs a key; nothing is ever signed with it.
	key := make([]byte, 1+ed25519.PublicKeySize)
	key[0] = 1 // the algorithm: Ed25519
	hash := sha256.Sum256(append([]byte("test\n"), key...))
	name := fmt.Sprintf("test+%x+%s", hash[:4], base64.StdEncoding.EncodeToString(key))
	for status, want := range map[int]string{
		http.StatusNotFound:           "NOT checked against the checksum database",
		http.StatusServiceUnavailable: "cannot be checked against the checksum database",
	} {
		db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }))
		t.Cleanup(db.Close)
		out, err := p.try([]string{"KB_OUTPUT_DIR=" + t.TempDir(), "GOMODCACHE=" + modcache(t), "GOSUMDB=" + name + " " + db.URL}, "hack/patchset.sh", "fetch", version)
		assert.Contains(t, out, want)
		assert.Equal(t, status == http.StatusNotFound, err == nil, out)
	}
}

func TestFetchInterrupted(t *testing.T) {
	p := newProject(t)
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	url := proxyServer(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/client-go/@v/v0.37.1.zip") {
			once.Do(func() { close(reached) })
			<-release
		}
		return false
	})
	other, cache := t.TempDir(), modcache(t)
	env := []string{"KB_OUTPUT_DIR=" + other, "GOPROXY=" + url, "GOMODCACHE=" + cache}
	cmd := p.command(env, "hack/patchset.sh", "fetch", version)
	require.NoError(t, cmd.Start())
	<-reached
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	err := cmd.Wait()
	require.Error(t, err)
	assert.NoDirExists(t, filepath.Join(other, version))
	assertNoScratch(t, other)

	// Killed without a chance to clean up: the next run does it.
	cmd = p.command(env, "hack/patchset.sh", "fetch", version)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return len(scratch(t, other)) > 0 }, patience, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait()
	assert.NoDirExists(t, filepath.Join(other, version))
	close(release)
	out, err := p.try(env, "hack/patchset.sh", "fetch", version)
	require.NoError(t, err, out)
	assert.FileExists(t, filepath.Join(other, version, "kubernetes/go.mod"))
	assertNoScratch(t, other)
}

func scratch(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, ".scratch.*"))
	require.NoError(t, err)
	return left
}

func assertNoScratch(t *testing.T, dir string) {
	t.Helper()
	assert.Empty(t, scratch(t, dir), "nothing half done is left")
}

// modcache is a module cache of its own, which can be removed afterwards.
func modcache(t *testing.T) string {
	dir, err := os.MkdirTemp(shared.dir, "modcache-")
	require.NoError(t, err)
	return dir
}

// TestPins: a source that is not the one that is meant is refused, also where no checksum database knows it.
func TestPins(t *testing.T) {
	p := newProject(t)
	p.ok(t, "hack/patchset.sh", "pin", version)
	sums := filepath.Join(p.dir, "patches/v1.37/kubernetes.sum")
	text := read(sums)
	assert.Equal(t, 4, strings.Count(text, " h1:"), text)
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "pin", version), "already has all hashes")
	fetch := func(proxy string) (string, error) {
		other := t.TempDir()
		out, err := p.try([]string{"KB_OUTPUT_DIR=" + other, "GOPROXY=file://" + proxy, "GOMODCACHE=" + modcache(t), "GONOSUMDB=k8s.io/*", "GOFLAGS=-mod=mod"},
			"hack/patchset.sh", "fetch", version)
		assertNoScratch(t, other)
		if err != nil {
			assert.NoDirExists(t, filepath.Join(other, version))
		}
		return out, err
	}
	out, err := fetch(shared.proxy)
	require.NoError(t, err, out)

	tampered := filepath.Join(t.TempDir(), "proxy")
	makeProxy(tampered, version)
	files := map[string]string{"evil.go": "package clientgo\n"}
	for name, content := range staging["client-go"] {
		files[name] = content
	}
	module(tampered, "k8s.io/client-go", "v0.37.1", files)
	out, err = fetch(tampered)
	require.Error(t, err, out)
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "k8s.io/client-go ") {
			assert.Contains(t, out, "expected  "+strings.Fields(line)[2])
		}
	}
	assert.Contains(t, out, "k8s.io/client-go@v0.37.1 has the wrong hash")
	assert.Regexp(t, `actual    h1:\S{44}`, out)
	assert.Contains(t, p.failsToPin(t, tampered), "has the wrong hash")

	// The zip alone, without .info and .mod, is no way around.
	require.NoError(t, os.Remove(filepath.Join(tampered, "k8s.io/client-go/@v/v0.37.1.info")))
	require.NoError(t, os.Remove(filepath.Join(tampered, "k8s.io/client-go/@v/v0.37.1.mod")))
	out, err = fetch(tampered)
	require.Error(t, err, out)
	assert.Contains(t, out, "the proxy has no k8s.io/client-go@v0.37.1, but "+sums+" has its hash")
	url := proxyServerOf(t, tampered)
	other := t.TempDir()
	p.fails(t, []string{"KB_OUTPUT_DIR=" + other, "GOPROXY=" + url, "GOMODCACHE=" + modcache(t)},
		[]string{"k8s.io/client-go@v0.37.1 has the wrong hash"}, "hack/patchset.sh", "fetch", version)

	// A module that the file does not have, and a file that is none.
	write(p.dir, map[string]string{"patches/v1.37/kubernetes.sum": strings.SplitAfter(text, "\n")[2] + strings.SplitAfter(text, "\n")[3]})
	out, err = fetch(shared.proxy)
	require.Error(t, err, out)
	assert.Contains(t, out, "expected  none")
	write(p.dir, map[string]string{"patches/v1.37/kubernetes.sum": "k8s.io/api v0.37.1\n"})
	out, err = fetch(shared.proxy)
	require.Error(t, err, out)
	assert.Contains(t, out, "kubernetes.sum line 1")
}

func (p project) failsToPin(t *testing.T, proxy string) string {
	t.Helper()
	before := p.patchBytes(t)
	out, err := p.try([]string{"GOPROXY=file://" + proxy, "GOMODCACHE=" + modcache(t)}, "hack/patchset.sh", "pin", version)
	require.Error(t, err, out)
	assert.Equal(t, before, p.patchBytes(t))
	return out
}

func proxyServerOf(t *testing.T, dir string) string {
	t.Helper()
	return serve(t, http.FileServer(http.Dir(dir)))
}
