// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

func TestExitCodes(t *testing.T) { both(t, testExitCodes) }

func testExitCodes(t *testing.T, p *pod) {
	codes := map[string]int32{"exit 0": 0, "exit 3": 3, "exit 255": 255, "sh -c 'kill -SEGV $$'; exit $?": 139}
	if p.sandbox != nil { // Only the kernel and processes outside can kill PID 1.
		codes["kill -KILL $$; kill -TERM $$; exit 5"] = 5
	} else {
		maps.Copy(codes, map[string]int32{"kill -KILL $$": 137, "kill -SEGV $$": 139, "kill -TERM $$": 143})
	}
	for script, code := range codes {
		before := time.Now()
		i := p.run(sh("c", script))
		assert.Equal(t, code, i.ExitCode, script)
		assert.Empty(t, i.Reason, script)
		assert.Empty(t, i.Message, script)
		assert.WithinRange(t, i.StartedAt, before.Round(0), i.FinishedAt)
		assert.WithinRange(t, i.FinishedAt, i.StartedAt, time.Now())
	}
}

func TestStop(t *testing.T) { both(t, testStop) }

func testStop(t *testing.T, p *pod) {
	ctx := t.Context()
	notHandled := int32(143)
	if p.sandbox != nil {
		notHandled = 137
	}
	for _, tc := range []struct {
		name, script string
		grace        time.Duration
		code         int32
		output       []string
	}{
		{"handled", "trap 'echo term; exit 7' TERM; echo ready; sleep 1000 & wait", time.Hour, 7, []string{"ready", "term"}},
		{"not-handled", "echo ready; exec sleep 1000", 50 * time.Millisecond, notHandled, []string{"ready"}},
		{"ignored", "trap '' TERM; echo ready; sleep 1000; :", 50 * time.Millisecond, 137, []string{"ready"}},
		{"at-once", "trap 'echo term; exit 7' TERM; echo ready; sleep 1000 & wait", 0, 137, []string{"ready"}},
		{"first-only", "trap 'echo first; exit 0' TERM; sh -c 'trap \"echo child\" TERM; echo ready; sleep 1000 & wait' & wait", time.Hour, 0, []string{"ready", "first"}},
	} {
		id := p.start(sh(tc.name, tc.script), 0)
		assert.Equal(t, "ready", p.lineOf(tc.name))
		assert.NoError(t, p.Stop(ctx, id, tc.grace), tc.name)
		i := p.instance(tc.name)
		assert.Equal(t, restart.ContainerStateExited, i.State, tc.name)
		assert.Equal(t, tc.code, i.ExitCode, tc.name)
		assert.Equal(t, tc.output, p.output(tc.name), tc.name)
		assert.NoError(t, p.Stop(ctx, id, tc.grace), "a second time")
	}
	assert.NoError(t, p.Stop(ctx, "unknown", 0))
}

func TestStopWithShorterGrace(t *testing.T) { both(t, testStopWithShorterGrace) }

func testStopWithShorterGrace(t *testing.T, p *pod) {
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
			p.Exec(t.Context(), id, []string{"sh", "-c", "touch $EXIT"})
			<-p.find(id).done
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, p *pod) {
				c := escaping("c")
				c.Env = []v1.EnvVar{{Name: "EXIT", Value: "/dev/shm/exit"}}
				if p.sandbox == nil {
					c.Env[0].Value = filepath.Join(p.dir, "exit")
				}
				m := mark(t, c)
				id := p.start(c, 0)
				require.Equal(t, "ready", p.lineOf("c"))
				// The script also counts its processes that end soon.
				require.Eventually(t, func() bool { return len(marked(m)) >= 9 }, time.Minute, time.Millisecond)
				end(p, id)
				require.Empty(t, marked(m))
			})
		})
	}
}

// A container with a growing number of processes, up to a limit.
func TestForkingEnds(t *testing.T) {
	for name, fork := range map[string]string{"group": `sh -c "$FORK"`, "session": `setsid sh -c "$FORK"`} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, p *pod) {
				fork := fork + " f $(($1 - 1)) &"
				c := sh("c", `sh -c "$FORK" f 7; sleep 1000`)
				c.Env = []v1.EnvVar{{Name: "FORK", Value: strings.ReplaceAll("[ $1 -gt 0 ] || exec sleep 1000; echo fork; sleep 0.05;"+fork+fork, "$", "$$")}}
				m := mark(t, c)
				id := p.start(c, 0)
				require.Eventually(t, func() bool { return len(p.output("c")) > 10 }, time.Minute, time.Millisecond)
				require.NoError(t, p.Stop(t.Context(), id, 0))
				require.Empty(t, marked(m))
			})
		})
	}
}

// outsideTmp returns a folder that every user can read.
func outsideTmp(t *testing.T) string {
	dir, err := os.MkdirTemp("/var/tmp", "process")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestStartErrors(t *testing.T) { both(t, testStartErrors) }

func testStartErrors(t *testing.T, p *pod) {
	dir := p.outside
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	for _, tc := range []struct {
		name, workingDir, message string
		command                   []string
	}{
		{"no-command", "", "no command: the command of the image is not known", nil},
		{"not-in-path", "", `exec: "no-such-command": executable file not found in $PATH`, []string{"no-such-command"}},
		{"not-there", "", "exec /no/such: no such file or directory", []string{"/no/such"}},
		{"directory", "", "exec /usr: permission denied", []string{"/usr"}},
		{"not-executable", "", "permission denied", []string{file("plain", "#!/bin/sh\n", 0o644)}},
		{"bad-format", "", "exec format error", []string{file("bad", "\x7fELF", 0o755)}},
		{"no-interpreter", "", "no such file or directory", []string{file("script", "#!/no/such\n", 0o755)}},
		{"no-working-dir", "/no/such", "workingDir: chdir /no/such: no such file or directory", []string{"true"}},
	} {
		if p.sandbox != nil && tc.name == "bad-format" {
			continue // bwrap passes it to /bin/sh, as shells do.
		}
		atStart := p.sandbox == nil || tc.name != "no-interpreter"
		id, err := p.Start(t.Context(), &v1.Container{Name: tc.name, Command: tc.command, WorkingDir: tc.workingDir}, 0)
		require.NoError(t, err, tc.name)
		i := p.instance(tc.name)
		if !atStart { // Only the kernel knows, so bwrap finds out.
			i = p.exited(tc.name)
		}
		assert.Equal(t, id, i.ID, tc.name)
		assert.Equal(t, restart.ContainerStateExited, i.State, tc.name)
		assert.Equal(t, int32(agent.ExitCodeStartError), i.ExitCode, tc.name)
		assert.Equal(t, agent.ReasonStartError, i.Reason, tc.name)
		assert.Contains(t, strings.ToLower(i.Message), strings.ToLower(tc.message), tc.name)
		assert.Equal(t, atStart, i.StartedAt.IsZero(), tc.name)
		assert.NotZero(t, i.FinishedAt, tc.name)
		_, _, err = p.Exec(t.Context(), id, []string{"true"})
		assert.ErrorIs(t, err, errNotRunning, tc.name)
	}
}

func TestStartIsRefused(t *testing.T) { both(t, testStartIsRefused) }

func testStartIsRefused(t *testing.T, p *pod) {
	p.start(sh("c", "sleep 1000"), 0)
	_, err := p.Start(t.Context(), sh("c", "true"), 1)
	require.EqualError(t, err, "container c is already running")
	bad := sh("bad", "true")
	bad.Env = []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{}}}
	_, err = p.Start(t.Context(), bad, 0)
	require.ErrorContains(t, err, "env X")
	require.NoError(t, p.Remove(t.Context()))
	_, err = p.Start(t.Context(), sh("c", "true"), 1)
	require.EqualError(t, err, "the pod has no sandbox")
	s, err := p.State(t.Context())
	require.NoError(t, err)
	require.False(t, s.SandboxReady)
	require.Equal(t, restart.ContainerStateExited, s.Instances["c"].State)
	require.NotContains(t, s.Instances, "bad")
}

func TestRestart(t *testing.T) { both(t, testRestart) }

func testRestart(t *testing.T, p *pod) {
	ids := map[string]bool{}
	for n := range 3 {
		ids[p.start(sh("c", "exit "+strconv.Itoa(n)), n)] = true
		<-p.Changed()
		i := p.instance("c")
		require.Equal(t, restart.ContainerStateExited, i.State, "before Changed")
		require.Equal(t, int32(n), i.ExitCode)
		require.Equal(t, n, i.RestartCount)
	}
	require.Len(t, ids, 3)
}

func TestParentIsKilled(t *testing.T) {
	both(t, func(t *testing.T, p *pod) {
		c := escaping("c")
		m := mark(t, c)
		id := p.start(c, 0)
		require.Equal(t, "ready", p.lineOf("c"))
		require.NoError(t, p.find(id).parent.cmd.Process.Kill())
		<-p.find(id).done
		s, err := p.State(t.Context())
		require.NoError(t, err)
		i := s.Instances["c"]
		require.Equal(t, int32(137), i.ExitCode)
		require.Equal(t, "the container's parent process ended early", i.Message)
		require.NotZero(t, i.FinishedAt)
		if p.sandbox == nil {
			return // Processes that escaped have no parent by which to find them.
		}
		require.Empty(t, marked(m))
		require.Eventually(t, func() bool {
			s, err := p.State(t.Context())
			return err == nil && !s.SandboxReady
		}, time.Minute, time.Millisecond)
		_, err = p.Start(t.Context(), c, 1)
		require.EqualError(t, err, "the pod has no sandbox")
		require.NoError(t, p.CreateSandbox(t.Context()))
		require.Zero(t, p.run(sh("c", "exit 0")).ExitCode)
	})
}

func Test200Containers(t *testing.T) { both(t, test200Containers) }

func test200Containers(t *testing.T, p *pod) {
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

func TestNothingLeaks(t *testing.T) { both(t, testNothingLeaks) }

func testNothingLeaks(t *testing.T, p *pod) {
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

// The instances of an unconfined container share one parent, one after another.
func TestUnconfinedInstances(t *testing.T) {
	p := newPod(t)
	c := sh("c", "echo $PPID; /bin/pwd; sleep 1000 & exit 3")
	c.WorkingDir = "internal" // The second one must not look for it in the folder of the first.
	m := mark(t, c)
	for restarts := range 2 {
		p.start(c, restarts)
		require.EqualValues(t, 3, p.exited("c").ExitCode)
		require.Empty(t, marked(m))
	}
	wd, err := os.Getwd()
	require.NoError(t, err)
	lines := p.output("c")
	require.Len(t, lines, 4)
	require.Equal(t, lines[:2], lines[2:])
	require.Equal(t, filepath.Join(wd, "internal"), lines[1])

	// A parent that has been killed is replaced.
	pid, err := strconv.Atoi(lines[0])
	require.NoError(t, err)
	ended := p.idle["c"].ended
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	<-ended
	p.start(c, 2)
	require.EqualValues(t, 3, p.exited("c").ExitCode)
	require.NotEqual(t, lines[0], p.output("c")[4])
	require.NoError(t, p.Remove(t.Context()))
	requireNoProcess(t, p.output("c")[4])
}
