// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestCountRequests(t *testing.T) {
	const text = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",subresource="",verb="GET"} 3
apiserver_request_total{code="404",resource="pods",subresource="",verb="GET"} 1
apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH"} 5
apiserver_request_total{code="200",resource="pods",subresource="",verb="WATCH"} 7
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 2
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 9
`
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got := countRequests(families["apiserver_request_total"])
	if want := map[string]float64{"GET pods": 4, "PATCH pods": 5, "POST events": 2}; !maps.Equal(got, want) {
		t.Errorf("countRequests = %v, want %v", got, want)
	}
	before := map[string]float64{"GET pods": 1, "POST events": 2}
	if got, want := increase(before, got), map[string]float64{"GET pods": 3, "PATCH pods": 5}; !maps.Equal(got, want) {
		t.Errorf("increase = %v, want %v", got, want)
	}
}

func TestParseMounts(t *testing.T) {
	const text = `30 1 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
31 1 8:1 /srv/a\040b /mnt/a\040b rw - ext4 /dev/sda1 rw
broken
`
	got := parseMounts([]byte(text))
	if len(got) != 2 || got[0] != (mount{"/", "/sys/fs/cgroup/cpu", "cgroup"}) || got[1] != (mount{"/srv/a b", "/mnt/a b", "ext4"}) {
		t.Errorf("parseMounts = %+v", got)
	}
}

func TestPack(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "crasher")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	i := nodeImages[0]
	if err := i.pack(program, i.archive(dir)); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(i.archive(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config.Entrypoint; len(got) != 1 || got[0] != "/crasher" || config.OS != "linux" || config.Architecture == "" {
		t.Errorf("config = %+v", config)
	}
	files := tar.NewReader(mutate.Extract(image))
	header, err := files.Next()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(files)
	if err != nil || header.Name != "crasher" || header.Mode != 0o755 || string(content) != "program" {
		t.Errorf("%s, mode %o: %q, %v", header.Name, header.Mode, content, err)
	}
}

func TestAwait(t *testing.T) {
	calls := 0
	if err := await(t.Context(), "the third call", time.Minute, func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || calls != 3 {
		t.Errorf("await = %v after %d calls, want success after 3", err, calls)
	}
	err := await(t.Context(), "a thing", time.Millisecond, func(context.Context) error { return errors.New("it is raining") })
	if err == nil || !strings.Contains(err.Error(), "a thing did not come about within 1ms: it is raining") {
		t.Errorf("await past its limit = %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if err := await(ctx, "a thing", time.Minute, func(context.Context) error { return errors.New("no") }); err == nil || err.Error() != "interrupted" {
		t.Errorf("await with an ended context = %v, want its cause", err)
	}
}

// A program that ends unasked must end the run with the reason.
func TestSupervisorReportsTheLog(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	s := &supervisor{ctx: ctx, fail: fail, logs: t.TempDir()}
	if _, err := s.start("thing", "/bin/sh", "-c", "echo out of luck; exit 3"); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if got := context.Cause(ctx).Error(); !strings.Contains(got, "thing ended unasked: exit status 3") || !strings.Contains(got, "out of luck") {
		t.Errorf("cause = %q", got)
	}
}

func TestSupervisorEnds(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	s := &supervisor{ctx: ctx, fail: fail, logs: t.TempDir()}
	p, err := s.start("thing", "/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	p.end()
	if err := context.Cause(ctx); err != nil {
		t.Errorf("a program that was told to end counts as failed: %v", err)
	}
}

func TestPodsDifferBetweenRuns(t *testing.T) {
	scenario := Scenario{Pods: 2}
	a := (&node{spec: spec{ID: "run-1", Dir: "/x", Scenario: scenario}}).pods()
	b := (&node{spec: spec{ID: "run-2", Dir: "/x", Scenario: scenario}}).pods()
	if len(a) != 2 || a[0].Name == a[1].Name {
		t.Fatalf("pods = %v", a)
	}
	if maps.Equal(a[0].Annotations, b[0].Annotations) {
		t.Errorf("both runs have the annotations %v: static pods would have the same UID", a[0].Annotations)
	}
}

func TestLongWorkFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 20))
	if _, err := newHarness(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "at most 107 are possible") {
		t.Errorf("newHarness(%q) = %v, want an error about the length of a socket's path", dir, err)
	}
}

func TestOneHarnessPerFolder(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h, err := newHarness(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newHarness(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "another harness is using it") {
		t.Errorf("a second harness in one folder: %v", err)
	}
	h.lock.Close()
}

// A killed harness leaves its folder; the next one removes it.
func TestStaleRunIsCleared(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	stale := filepath.Join(dir, runPrefix+"1", "containerd")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := newHarness(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.lock.Close()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", stale, err)
	}
	var out strings.Builder
	if err := h.check(&out); err != nil || !strings.Contains(out.String(), "nothing is left behind") {
		t.Errorf("check = %v, %q", err, out.String())
	}
}

func TestMissingIsToldAtOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	none, some := "", filepath.Join(t.TempDir(), "kubelet")
	_, err := prerequisites([]binary{{"--stock", &some}, {"--ours", &none}, {"--apiserver", &none}}, true)
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"--stock: ", "--ours: not given", "--apiserver: not given", "Debian package runc", "Debian package etcd-server"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// Two scenarios of one name would share the folder of their pods.
func TestScenarioNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range slices.Concat(podScenarios, overScenarios, startScenarios, disruptions, gateDisruptions, staticDisruptions,
		crashloopScenarios, crashloopDisruptions) {
		name := strings.ToLower(s.name)
		if seen[name] {
			t.Errorf("two scenarios are named %s", s.name)
		}
		seen[name] = true
	}
}
