// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"os"
	"os/signal"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
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

func TestEnvironment(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH"))
	t.Setenv("HOME", "/home/agent")
	t.Setenv("GOGC", "17") // One that is not the container's.
	p := newPod(t)
	c := &v1.Container{Name: "c", Command: []string{"env"}, Env: []v1.EnvVar{
		{Name: "NAME", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "BOTH", Value: "$(NAME)-1"},
	}}
	p.run(c)
	require.ElementsMatch(t, []string{"BOTH=web-1", "HOME=/home/agent", "HOSTNAME=web", "NAME=web", "PATH=" + os.Getenv("PATH")}, p.output("c"))

	// The container's own PATH is where its command is looked for.
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "hello"), []byte("#!/bin/sh\necho hello $1; /bin/pwd"), 0o755))
	c = &v1.Container{Name: "d", Command: []string{"hello"}, Args: []string{"$(GOGC)$(HOME)"}, WorkingDir: "/usr", Env: []v1.EnvVar{
		{Name: "PATH", Value: p.dir}, {Name: "HOME", Value: "/root"}, {Name: "GOGC", Value: "off"},
	}}
	p.run(c)
	require.Equal(t, []string{"hello off/root", "/usr"}, p.output("d"))
}

// A container is to get nothing else of the agent's either.
func TestInherited(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	fd, err := syscall.Dup(1) // stays open in what the agent executes
	require.NoError(t, err)
	defer syscall.Close(fd)
	p := newPod(t)
	p.run(sh("c", `cat; readlink /proc/$$/fd/0; ls -m /proc/$$/fd; awk '/^SigIgn/{print $2}' /proc/$$/status; cut -d' ' -f6 /proc/$$/stat /proc/$PPID/stat; echo $$ $PPID`))
	lines := p.output("c")
	require.Len(t, lines, 6)
	require.Equal(t, []string{"/dev/null", "0, 1, 2"}, lines[:2])
	ignored, err := strconv.ParseUint(lines[2], 16, 64)
	require.NoError(t, err)
	require.Zero(t, ignored&(1<<31-1), "those after 31 are libc's own, which make has its children ignore")
	require.Equal(t, lines[3]+" "+lines[4], lines[5], "sessions of their own")
}

func TestVolumes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "volumes/data/old"), 0o755))
	p := newPodIn(t, dir, "data", "cache")
	mounted := func(c *v1.Container) *v1.Container {
		c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "cache", MountPath: "data/cache/"}}
		c.WorkingDir = "/data"
		c.Env = []v1.EnvVar{{Name: "FILE", Value: "/data/cache/file"}}
		return c
	}
	require.Zero(t, p.run(mounted(sh("a", `ls; echo here >$FILE; mkdir locked; touch locked/file; chmod 0 locked`))).ExitCode)
	require.Empty(t, p.output("a"), "what was there before")
	id := p.start(mounted(sh("b", `pwd; cat "/data/cache/file" $FILE; exec sleep 1000`)), 0)
	require.Eventually(t, func() bool { return len(p.output("b")) == 3 }, time.Minute, time.Millisecond)
	require.Equal(t, []string{filepath.Join(dir, "volumes/data"), "here", "here"}, p.output("b"))
	output, code, err := p.Exec(t.Context(), id, []string{"cat", "/data/cache/file"})
	require.NoError(t, err)
	require.Zero(t, code)
	require.Equal(t, "here\n", string(output))
	require.NoError(t, p.Remove(t.Context()))
	require.NoDirExists(t, filepath.Join(dir, "volumes"))
	require.FileExists(t, filepath.Join(dir, "logs/b/0.log"))
}

func TestReplaceMounts(t *testing.T) {
	m := mounts([]v1.VolumeMount{
		{Name: "d", MountPath: "/data"}, {Name: "c", MountPath: "/data/cache/"}, {Name: "v", MountPath: "/v"}, {Name: "root", MountPath: "/"},
	}, "/v")
	for in, want := range map[string]string{
		"":                                "",
		"/":                               "/",
		"/data":                           "/v/d",
		"/data/":                          "/v/d/",
		"/data/x":                         "/v/d/x",
		"/data/cache":                     "/v/c",
		"/data/cached":                    "/v/d/cached",
		"/v/data":                         "/v/v/data", // once, and from the beginning
		"/data2 /data-x /data.d":          "/data2 /data-x /data.d",
		"/data* /data$x /data{1,2}":       "/data* /data$x /data{1,2}",
		"data ./data ../data x/data":      "data ./data ../data x/data",
		"$D/data ${D}/data $(D)/data":     "$D/data ${D}/data $(D)/data",
		"//data file:///data ~/data":      "//data file:///data ~/data",
		"http://host/data":                "http://host/data",
		"--dir=/data":                     "--dir=/v/d",
		"/bin:/data:/data/cache/b":        "/bin:/v/d:/v/c/b",
		"cat '/data' \"/data\";ls >/data": "cat '/v/d' \"/v/d\";ls >/v/d",
		"${D:-/data} $(ls /data)":         "${D:-/v/d} $(ls /v/d)",
		"/data,/data\n/data":              "/v/d,/v/d\n/v/d",
		"/datä /data\u00e4":               "/datä /dataä",
	} {
		assert.Equal(t, want, replaceMounts(in, m), in)
	}
}

func TestExec(t *testing.T) {
	p := newPod(t)
	c := sh("c", "trap 'exit 0' TERM; sleep 1000 & wait")
	c.Env = []v1.EnvVar{{Name: "X", Value: "of the container"}}
	c.WorkingDir = p.dir
	m := mark(t, c)
	id := p.start(c, 0)
	exec := func(ctx context.Context, script string) (string, int, error) {
		output, code, err := p.Exec(ctx, id, []string{"sh", "-c", script})
		return string(output), code, err
	}
	output, code, err := exec(t.Context(), "echo $X; echo error >&2; /bin/pwd")
	require.NoError(t, err)
	require.Zero(t, code)
	require.Equal(t, "of the container\nerror\n"+p.dir+"\n", output)
	_, code, err = exec(t.Context(), "exit 3")
	require.NoError(t, err)
	require.Equal(t, 3, code)
	output, code, err = exec(t.Context(), "head -c 1000000 /dev/zero")
	require.NoError(t, err)
	require.Zero(t, code)
	require.Len(t, output, podfiles.MaxExecOutput)
	_, _, err = p.Exec(t.Context(), id, []string{"no-such-command"})
	require.ErrorContains(t, err, "executable file not found")
	_, _, err = p.Exec(t.Context(), "unknown", []string{"true"})
	require.ErrorIs(t, err, errNotRunning)
	_, _, err = exec(t.Context(), "kill -KILL $PPID; while :; do :; done")
	require.ErrorContains(t, err, "ended early")

	require.Eventually(t, func() bool { return len(marked(m)) == 2 }, time.Minute, time.Millisecond, "without what ends with its shim")
	script := "trap '' TERM; setsid sleep 1000 & echo out; touch begun; wait; sleep 1000"
	begun := func() bool {
		_, err := os.Stat(filepath.Join(p.dir, "begun"))
		return err == nil && os.Remove(filepath.Join(p.dir, "begun")) == nil
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, context.DeadlineExceeded)
	defer cancel()
	output, _, err = exec(ctx, script)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Contains(t, []string{"", "out\n"}, output)
	require.Eventually(t, func() bool { return len(marked(m)) == 2 }, time.Minute, time.Millisecond)
	begun()

	result := make(chan error)
	go func() {
		_, _, err := exec(t.Context(), script)
		result <- err
	}()
	require.Eventually(t, begun, time.Minute, time.Millisecond)
	require.NoError(t, p.Stop(t.Context(), id, time.Hour))
	require.Empty(t, marked(m), "State is that of an exit only after its commands have ended")
	require.ErrorIs(t, <-result, errNotRunning)
	_, _, err = exec(t.Context(), "true")
	require.ErrorIs(t, err, errNotRunning)
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
