// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

func TestMain(m *testing.M) {
	Shim()
	if dir := os.Getenv(agentDir); dir != "" {
		runAgent(dir)
	}
	os.Exit(m.Run())
}

// pod is one of which a Runtime is under test.
type pod struct {
	*Runtime
	t   *testing.T
	dir string

	mu       sync.Mutex
	lines    map[string][]string
	warnings []string
	// block is waited for with each line.
	block chan struct{}
}

func newPod(t *testing.T, volumes ...string) *pod {
	return newPodIn(t, t.TempDir(), volumes...)
}

func newPodIn(t *testing.T, dir string, volumes ...string) *pod {
	t.Helper()
	spec := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	for _, name := range volumes {
		spec.Spec.Volumes = append(spec.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	}
	p := &pod{t: t, dir: dir, lines: map[string][]string{}}
	r, err := New(spec, dir, func(container string, line []byte) {
		if p.block != nil {
			<-p.block
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lines[container] = append(p.lines[container], string(line))
	}, func(container, message string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.warnings = append(p.warnings, container+": "+message)
	})
	require.NoError(t, err)
	p.Runtime = r
	require.NoError(t, r.CreateSandbox(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.Remove(context.Background())) })
	return p
}

func sh(name, script string) *v1.Container {
	script = strings.ReplaceAll(script, "$", "$$") // $$ is $ in a manifest.
	return &v1.Container{Name: name, Command: []string{"/bin/sh", "-c", script}}
}

func (p *pod) start(c *v1.Container, restarts int) string {
	p.t.Helper()
	id, err := p.Start(p.t.Context(), c, restarts)
	require.NoError(p.t, err)
	return id
}

// run starts a container and returns how it ended.
func (p *pod) run(c *v1.Container) agent.Instance {
	p.t.Helper()
	p.start(c, 0)
	return p.exited(c.Name)
}

func (p *pod) instance(name string) agent.Instance {
	p.t.Helper()
	s, err := p.State(p.t.Context())
	require.NoError(p.t, err)
	assert.True(p.t, s.SandboxReady)
	assert.Equal(p.t, "127.0.0.1", s.IP)
	require.Contains(p.t, s.Instances, name)
	return s.Instances[name]
}

// exited waits for the end of a container.
func (p *pod) exited(name string) agent.Instance {
	p.t.Helper()
	var i agent.Instance
	require.Eventually(p.t, func() bool {
		i = p.instance(name)
		return i.State == restartpod.StateExited
	}, time.Minute, time.Millisecond)
	return i
}

func (p *pod) output(name string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.lines[name]...)
}

// lineOf waits for the first line of a container.
func (p *pod) lineOf(name string) string {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return len(p.output(name)) > 0 }, time.Minute, time.Millisecond)
	return p.output(name)[0]
}

func TestExitCodes(t *testing.T) {
	p := newPod(t)
	for script, code := range map[string]int32{
		"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -KILL $$": 137, "kill -SEGV $$": 139, "kill -TERM $$": 143,
	} {
		before := time.Now()
		i := p.run(sh("c", script))
		assert.Equal(t, code, i.ExitCode, script)
		assert.Empty(t, i.Reason, script)
		assert.Empty(t, i.Message, script)
		assert.WithinRange(t, i.StartedAt, before.Round(0), i.FinishedAt)
		assert.WithinRange(t, i.FinishedAt, i.StartedAt, time.Now())
	}
}

func TestStop(t *testing.T) {
	ctx := t.Context()
	p := newPod(t)
	for _, tc := range []struct {
		name, script string
		grace        time.Duration
		code         int32
		output       []string
	}{
		{"handled", "trap 'echo term; exit 7' TERM; echo ready; sleep 1000 & wait", time.Hour, 7, []string{"ready", "term"}},
		{"not-handled", "echo ready; exec sleep 1000", 50 * time.Millisecond, 137, []string{"ready"}}, // As the first process of a container.
		{"ignored", "trap '' TERM; echo ready; sleep 1000; :", 50 * time.Millisecond, 137, []string{"ready"}},
		{"at-once", "trap 'echo term; exit 7' TERM; echo ready; sleep 1000 & wait", 0, 137, []string{"ready"}},
		{"first-only", "sh -c 'trap \"echo child\" TERM; echo ready; sleep 1000 & wait' & trap 'echo first' TERM; wait; echo end", time.Hour, 0, []string{"ready", "first", "end"}},
	} {
		id := p.start(sh(tc.name, tc.script), 0)
		assert.Equal(t, "ready", p.lineOf(tc.name))
		assert.NoError(t, p.Stop(ctx, id, tc.grace), tc.name)
		i := p.instance(tc.name)
		assert.Equal(t, restartpod.StateExited, i.State, tc.name)
		assert.Equal(t, tc.code, i.ExitCode, tc.name)
		assert.Equal(t, tc.output, p.output(tc.name), tc.name)
		assert.NoError(t, p.Stop(ctx, id, tc.grace), "a second time")
	}
	assert.NoError(t, p.Stop(ctx, "unknown", 0))
}

func TestStopWithShorterGrace(t *testing.T) {
	p := newPod(t)
	id := p.start(sh("c", "trap 'echo term' TERM; echo ready; while :; do sleep 1000 & wait; done"), 0)
	p.lineOf("c")
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop(t.Context(), id, time.Hour) }()
	require.Eventually(t, func() bool { return len(p.output("c")) == 2 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Stop(ctx, id, time.Hour), context.Canceled)
	require.NoError(t, p.Stop(t.Context(), id, time.Millisecond))
	require.NoError(t, <-stopped)
	require.Equal(t, int32(137), p.instance("c").ExitCode)
	require.Equal(t, []string{"ready", "term"}, p.output("c"), "one SIGTERM")
}

func TestNothingIsLeft(t *testing.T) {
	for name, end := range map[string]func(p *pod, id string){
		"Stop":   func(p *pod, id string) { require.NoError(t, p.Stop(t.Context(), id, time.Millisecond)) },
		"Remove": func(p *pod, _ string) { require.NoError(t, p.Remove(t.Context())) },
		"exit": func(p *pod, id string) {
			p.Exec(t.Context(), id, []string{"sh", "-c", "kill -KILL $(cat first)"})
			<-p.find(id).done
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			c := escaping("c")
			c.WorkingDir = p.dir
			c.Command[2] = "echo $$$$ >first;" + c.Command[2]
			m := mark(t, c)
			id := p.start(c, 0)
			require.Equal(t, "ready", p.lineOf("c"))
			require.GreaterOrEqual(t, len(marked(m)), 9)
			end(p, id)
			require.Empty(t, marked(m))
		})
	}
}

// A container whose processes multiply, if only to a bound.
func TestForkingEnds(t *testing.T) {
	for name, fork := range map[string]string{"group": "sh ./fork", "session": "setsid sh ./fork"} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			fork += " $(($1 - 1)) &"
			require.NoError(t, os.WriteFile(filepath.Join(p.dir, "fork"), []byte("[ $1 -gt 0 ] || exec sleep 1000; echo fork; sleep 0.05;"+fork+fork), 0o644))
			c := sh("c", "sh ./fork 7; sleep 1000")
			c.WorkingDir = p.dir
			m := mark(t, c)
			id := p.start(c, 0)
			require.Eventually(t, func() bool { return len(p.output("c")) > 10 }, time.Minute, time.Millisecond)
			require.NoError(t, p.Stop(t.Context(), id, 0))
			require.Empty(t, marked(m))
		})
	}
}

func TestStartErrors(t *testing.T) {
	p := newPod(t)
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(p.dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	for _, tc := range []struct {
		name, workingDir, message string
		command                   []string
	}{
		{"no-command", "", "no command: that of the image is not known", nil},
		{"not-in-path", "", `exec: "no-such-command": executable file not found in $PATH`, []string{"no-such-command"}},
		{"not-there", "", "stat /no/such: no such file or directory", []string{"/no/such"}},
		{"not-executable", "", "permission denied", []string{file("plain", "#!/bin/sh\n", 0o644)}},
		{"bad-format", "", "exec format error", []string{file("bad", "\x7fELF", 0o755)}},
		{"no-interpreter", "", "no such file or directory", []string{file("script", "#!/no/such\n", 0o755)}},
		{"no-working-dir", "/no/such", "workingDir: chdir /no/such: no such file or directory", []string{"true"}},
	} {
		id, err := p.Start(t.Context(), &v1.Container{Name: tc.name, Command: tc.command, WorkingDir: tc.workingDir}, 0)
		require.NoError(t, err, tc.name)
		i := p.instance(tc.name)
		assert.Equal(t, id, i.ID, tc.name)
		assert.Equal(t, restartpod.StateExited, i.State, tc.name)
		assert.Equal(t, int32(agent.ExitCodeStartError), i.ExitCode, tc.name)
		assert.Equal(t, agent.ReasonStartError, i.Reason, tc.name)
		assert.Contains(t, i.Message, tc.message, tc.name)
		assert.Zero(t, i.StartedAt, tc.name)
		assert.NotZero(t, i.FinishedAt, tc.name)
		_, _, err = p.Exec(t.Context(), id, []string{"true"})
		assert.ErrorIs(t, err, errNotRunning, tc.name)
	}
}

func TestStartIsRefused(t *testing.T) {
	p := newPod(t)
	p.start(sh("c", "sleep 1000"), 0)
	_, err := p.Start(t.Context(), sh("c", "true"), 1)
	require.EqualError(t, err, "container c runs already")
	bad := sh("bad", "true")
	bad.Env = []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{}}}
	_, err = p.Start(t.Context(), bad, 0)
	require.ErrorContains(t, err, "env X")
	require.NoError(t, p.Remove(t.Context()))
	_, err = p.Start(t.Context(), sh("c", "true"), 1)
	require.EqualError(t, err, "there is no sandbox")
	s, err := p.State(t.Context())
	require.NoError(t, err)
	require.False(t, s.SandboxReady)
	require.Equal(t, restartpod.StateExited, s.Instances["c"].State)
	require.NotContains(t, s.Instances, "bad")
}

func TestRestart(t *testing.T) {
	p := newPod(t)
	ids := map[string]bool{}
	for n := range 3 {
		ids[p.start(sh("c", "exit "+strconv.Itoa(n)), n)] = true
		<-p.Changed()
		i := p.instance("c")
		require.Equal(t, restartpod.StateExited, i.State, "before Changed")
		require.Equal(t, int32(n), i.ExitCode)
		require.Equal(t, n, i.Restarts)
	}
	require.Len(t, ids, 3)
}

func TestShimIsKilled(t *testing.T) {
	p := newPod(t)
	c := sh("c", "until [ -e started ]; do sleep 0.01; done; kill -KILL $PPID; while :; do :; done")
	c.WorkingDir = p.dir
	m := mark(t, c)
	p.start(c, 0) // A shim that is killed before it has reported a start has none.
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "started"), nil, 0o600))
	i := p.exited("c")
	require.Equal(t, int32(137), i.ExitCode)
	require.Equal(t, "the container's parent process ended early", i.Message)
	require.NotZero(t, i.FinishedAt)
	requireGone(t, m)
}

func Test200Containers(t *testing.T) {
	p := newPod(t)
	ids := make([]string, 200)
	name := func(n int) string { return "c" + strconv.Itoa(n) }
	var wg sync.WaitGroup
	for n := range ids {
		wg.Go(func() {
			id, err := p.Start(t.Context(), sh(name(n), "trap 'exit 9' TERM; echo ready; sleep 1000 & wait"), 0)
			assert.NoError(t, err)
			ids[n] = id
		})
	}
	wg.Wait()
	for n := range ids {
		p.lineOf(name(n))
	}
	for _, id := range ids {
		wg.Go(func() { assert.NoError(t, p.Stop(t.Context(), id, time.Hour)) })
	}
	wg.Wait()
	for n := range ids {
		require.Equal(t, int32(9), p.instance(name(n)).ExitCode)
	}
}

func TestNothingLeaks(t *testing.T) {
	p := newPod(t)
	round := func(n int) {
		p.run(sh("short", "echo x; sleep 1000 & exit 1"))
		_, err := p.Start(t.Context(), &v1.Container{Name: "failing", Command: []string{"/no/such"}}, n)
		require.NoError(t, err)
		id := p.start(sh("stopped", "exec sleep 1000"), n)
		_, _, err = p.Exec(t.Context(), id, []string{"true"})
		require.NoError(t, err)
		_, _, err = p.Exec(t.Context(), id, []string{"/no/such"})
		require.Error(t, err)
		require.NoError(t, p.Stop(t.Context(), id, time.Millisecond))
	}
	type counts struct{ files, goroutines, children int }
	count := func() counts {
		entries, err := os.ReadDir("/proc/self/fd")
		assert.NoError(t, err)
		return counts{len(entries), runtime.NumGoroutine(), len(childrenOf(os.Getpid()))}
	}
	round(0)
	before, now := count(), counts{}
	before.goroutines++ // Eventually's own
	for n := range 20 {
		round(n + 1)
	}
	assert.Eventually(t, func() bool {
		now = count()
		return now.files <= before.files && now.goroutines <= before.goroutines && now.children <= before.children
	}, time.Minute, time.Millisecond)
	t.Logf("before %+v, now %+v", before, now)
}
