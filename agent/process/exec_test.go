// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
)

func TestEnvironment(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH"))
	t.Setenv("HOME", "/home/agent")
	t.Setenv("GOGC", "17") // One that is not the container's.
	both(t, testEnvironment)
}

func testEnvironment(t *testing.T, p *pod) {
	dir := p.outside
	c := &v1.Container{Name: "c", Command: []string{"env"}, Env: []v1.EnvVar{
		{Name: "NAME", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "BOTH", Value: "$(NAME)-1"},
	}}
	p.run(c)
	want := []string{"BOTH=web-1", "HOME=/home/agent", "HOSTNAME=web", "NAME=web", "PATH=" + os.Getenv("PATH")}
	if p.sandbox != nil {
		want = append(want, "PWD=/")
	}
	require.ElementsMatch(t, want, p.output("c"))

	// The command is looked up in the PATH of the container.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hello"), []byte("#!/bin/sh\necho hello $1; /bin/pwd"), 0o755))
	c = &v1.Container{Name: "d", Command: []string{"hello"}, Args: []string{"$(GOGC)$(HOME)"}, WorkingDir: "/usr", Env: []v1.EnvVar{
		{Name: "PATH", Value: dir}, {Name: "HOME", Value: "/root"}, {Name: "GOGC", Value: "off"},
	}}
	p.run(c)
	require.Equal(t, []string{"hello off/root", "/usr"}, p.output("d"))
}

// A container inherits nothing else from the agent.
func TestInherited(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	fd, err := syscall.Dup(1) // stays open in what the agent executes
	require.NoError(t, err)
	defer syscall.Close(fd)
	both(t, func(t *testing.T, p *pod) {
		p.run(sh("c", `cat; readlink /proc/$$/fd/0; ls -m /proc/$$/fd; awk '/^SigIgn/{print $2}' /proc/$$/status; cut -d' ' -f6 /proc/$$/stat; echo $$; hostname`))
		lines := p.output("c")
		require.Len(t, lines, 6)
		require.Equal(t, []string{"/dev/null", "0, 1, 2"}, lines[:2])
		ignored, err := strconv.ParseUint(lines[2], 16, 64)
		require.NoError(t, err)
		require.Zero(t, ignored&(1<<31-1), "those after 31 are libc's own, which make has its children ignore")
		require.Equal(t, lines[3], lines[4], "a session of its own")
		require.Equal(t, (p.sandbox != nil), lines[4] == "1")
		require.Equal(t, (p.sandbox != nil), lines[5] == "web")
	})
}

func TestExec(t *testing.T) { both(t, testExec) }

func testExec(t *testing.T, p *pod) {
	c := sh("c", "trap 'exit 0' TERM; sleep 1000 & wait")
	dir := p.outside
	c.Env = []v1.EnvVar{{Name: "X", Value: "of the container"}, {Name: "BEGUN", Value: "/dev/shm/begun"}}
	if p.sandbox == nil {
		c.Env[1].Value = filepath.Join(dir, "begun")
	}
	c.WorkingDir = dir
	m := mark(t, c)
	id := p.start(c, 0)
	exec := func(ctx context.Context, script string) (string, int, error) {
		output, code, err := p.Exec(ctx, id, []string{"sh", "-c", script})
		return string(output), code, err
	}
	output, code, err := exec(t.Context(), "echo $X; echo error >&2; /bin/pwd; id -u")
	require.NoError(t, err)
	require.Zero(t, code)
	require.Equal(t, fmt.Sprintf("of the container\nerror\n%s\n%d\n", dir, os.Getuid()), output)
	if p.sandbox != nil {
		output, _, err = exec(t.Context(), "tr '\\0' ' ' </proc/1/cmdline; grep ^NoNewPrivs: /proc/self/status")
		require.NoError(t, err)
		require.Contains(t, output, "/bin/sh -c trap")
		require.Contains(t, output, "NoNewPrivs:\t1")
	}
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
	require.Len(t, marked(m), 2)

	// The first process of a command ends at the deadline, the rest with the
	// container.
	script := "trap '' TERM; setsid sleep 1000 & echo out; touch $BEGUN; wait; sleep 1000"
	begun := func() bool {
		_, code, err := exec(t.Context(), "rm $BEGUN 2>/dev/null")
		return err == nil && code == 0
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	result := make(chan error)
	run := func(ctx context.Context) {
		output, _, err := exec(ctx, script)
		assert.Equal(t, "out\n", output)
		result <- err
	}
	go run(ctx)
	require.Eventually(t, begun, time.Minute, time.Millisecond)
	cancel(context.DeadlineExceeded)
	require.ErrorIs(t, <-result, context.DeadlineExceeded)
	require.Len(t, marked(m), 3)

	go run(t.Context())
	require.Eventually(t, begun, time.Minute, time.Millisecond)
	require.NoError(t, p.Stop(t.Context(), id, time.Hour))
	require.Empty(t, marked(m), "State is that of an exit only after its commands have ended")
	require.ErrorIs(t, <-result, errNotRunning)
	_, _, err = exec(t.Context(), "true")
	require.ErrorIs(t, err, errNotRunning)
}
