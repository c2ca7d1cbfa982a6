// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// agentDir is set to the folder of its pod for an agent, which is this executable.
const agentDir = "PROCESS_TEST_AGENT_DIR"

// agentConfined is set for an agent with a confined pod.
const agentConfined = "PROCESS_TEST_AGENT_CONFINED"

// agentStarts is set for an agent that starts containers, up to three at a time, and
// writes a byte before each.
const agentStarts = "PROCESS_TEST_AGENT_STARTS"

// runAgent is an agent. It writes a line when all its processes run, and does not return.
func runAgent(dir string) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	ready := make(chan struct{}, 10)
	r, err := New(pod, dir, Options{Unconfined: os.Getenv(agentConfined) == ""}, func(string, []byte) { ready <- struct{}{} }, func(string, string) {})
	if err != nil {
		panic(err)
	}
	if os.Getenv(agentStarts) != "" {
		fmt.Print("s")
	}
	if err := r.CreateSandbox(context.Background()); err != nil {
		panic(err)
	}
	c := escaping("c")
	c.Env = []v1.EnvVar{{Name: "MARK", Value: os.Args[1]}}
	if os.Getenv(agentStarts) != "" {
		running := make(chan struct{}, 3)
		for n := range 30 {
			running <- struct{}{}
			fmt.Print("s")
			c := sh("c"+strconv.Itoa(n), "trap '' TERM; setsid sleep 1000 & sleep 1000")
			c.Env = []v1.EnvVar{{Name: "MARK", Value: os.Args[1]}}
			go func() {
				r.Start(context.Background(), c, 0)
				<-running
			}()
		}
		select {}
	}
	id, err := r.Start(context.Background(), c, 0)
	if err != nil {
		panic(err)
	}
	<-ready
	if _, _, err := r.Exec(context.Background(), id, []string{"/bin/sh", "-c", "trap '' TERM; setsid sleep 1000 >/dev/null 2>&1 &"}); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	select {}
}

//go:embed testdata/escape.sh
var escape string

// escaping is a container that tries to escape. It writes a line when all its processes
// run, and exits when the file EXIT exists.
func escaping(name string) *v1.Container {
	return sh(name, escape+`echo ready; while ! [ -e "$EXIT" ]; do sleep 0.1; done`)
}

// newMark returns a value of the variable MARK, which marks processes. Those that are
// left are killed at the end of the test.
func newMark(t *testing.T) string {
	m := string(uuid.NewUUID())
	t.Cleanup(func() {
		for _, p := range marked(m) {
			if pid, err := strconv.Atoi(p); err == nil {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return m
}

// mark marks all processes of a container.
func mark(t *testing.T, c *v1.Container) string {
	m := newMark(t)
	c.Env = append(c.Env, v1.EnvVar{Name: "MARK", Value: m})
	return m
}

// marked returns the processes of a container, except zombies.
func marked(mark string) []string {
	var pids []string
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, e := range environs {
		if environ, err := os.ReadFile(e); err == nil && bytes.Contains(environ, []byte(mark)) {
			pids = append(pids, strings.Split(e, "/")[2])
		}
	}
	return pids
}

// childrenOf returns the children of a process, including zombies.
func childrenOf(pid int) []string {
	var pids []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		if stat, err := os.ReadFile(s); err == nil {
			fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			if fields[1] == strconv.Itoa(pid) {
				pids = append(pids, strings.Split(s, "/")[2])
			}
		}
	}
	return pids
}

// requireNoProcess waits until a process has ended. It may be a zombie.
func requireNoProcess(t *testing.T, pid string) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
	}, time.Minute, time.Millisecond)
}

func requireGone(t *testing.T, mark string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(marked(mark)) == 0 }, time.Minute, time.Millisecond)
}

// startAgent starts an agent, and returns when all its processes run.
func startAgent(t *testing.T, confined bool) (cmd *exec.Cmd, mark string) {
	t.Helper()
	mark = newMark(t)
	cmd = exec.Command("/proc/self/exe", mark)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), agentDir+"="+cmd.Dir)
	if confined {
		cmd.Env = append(cmd.Env, agentConfined+"=yes")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line := make([]byte, 6)
	_, err = io.ReadFull(out, line)
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(line))
	require.GreaterOrEqual(t, len(marked(mark)), 10)
	return cmd, mark
}

func TestAllEndsWithTheAgent(t *testing.T) {
	both(t, func(t *testing.T, p *pod) {
		agent, mark := startAgent(t, (p.sandbox != nil))
		parents := childrenOf(agent.Process.Pid)
		require.Len(t, parents, 1)
		require.NoError(t, agent.Process.Kill())
		agent.Wait()
		requireGone(t, mark)
		requireNoProcess(t, parents[0])
	})
}
