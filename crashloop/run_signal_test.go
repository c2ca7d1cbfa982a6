// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

func TestRunEndsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	c := newCommand(t, []*v1.Pod{newPod(never, container("main"), container("other"))}).start()
	c.listen("main.ready")
	c.listen("other.ready")
	require.NoError(t, c.stdout.Close()) // Nothing else causes a write.
	require.Equal(t, 128+int(syscall.SIGPIPE), c.wait())
	require.Empty(t, processesOf(c.pod.Name))
	require.Empty(t, c.errors())
	c.requireOnlyLogs()
}

// Some programs give their children a socket.
func TestReaderGone(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	stdout := os.NewFile(uintptr(pair[0]), "stdout")
	defer stdout.Close()
	gone := readerGone(stdout)
	require.NoError(t, unix.Close(pair[1]))
	select {
	case <-gone:
	case <-time.After(patience):
		require.Fail(t, "the end of the reader is not noticed")
	}
}

// Before head, the other commands end as any program does.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"check examples/crash.yaml", "check -o json", "plan examples/crash.yaml", "plan fleet --pods 1", "plan --help", "status --metrics crashloop/testdata/status/node.prom"} {
		reader, writer, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, reader.Close())
		cmd := exec.Command("/proc/self/exe", strings.Fields(args)...)
		var stderr bytes.Buffer
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "..", append(os.Environ(), asCommand+"=1"), writer, &stderr
		require.Error(t, cmd.Run(), args)
		require.NoError(t, writer.Close())
		require.Equal(t, syscall.SIGPIPE, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), args)
		require.Empty(t, stderr.String(), args)
	}
}

// escaping is a container that tries to escape, and exits when the test writes its exit
// code.
func escaping(t *testing.T, name string) v1.Container {
	escape, err := os.ReadFile("../agent/process/testdata/escape.sh")
	require.NoError(t, err)
	return script(name, string(escape)+"echo >$CTL/"+name+".ready; read code <$CTL/"+name+"; exit $code", env("MARK", rand.String(10)))
}

func TestRunIsKilled(t *testing.T) {
	t.Parallel()
	pod := volume(newPod(always, container("proxy", asSidecar), escaping(t, "main"), container("other", mount("data", "/data"))), "data")
	c := startRun(t, pod)
	c.until("other#1 running")
	require.NoError(t, os.WriteFile(filepath.Join(c.dir(), "volumes", "data", "file"), nil, 0o600))
	require.Greater(t, len(processesOf(pod.Name)), 8)
	c.signal(syscall.SIGKILL)
	require.Equal(t, -1, c.wait())
	c.requireNoProcess()

	// The next run succeeds with what the killed one has left.
	next := volume(newPod(never, script("main", "exec ls -A /data", mount("data", "/data"))), "data")
	next.Name, next.UID = pod.Name, pod.UID
	c = newCommand(t, []*v1.Pod{next}).in(c.root).start().read()
	c.until("pod Succeeded restarts=0")
	c.ends(exitSucceeded, "")
	require.Empty(t, c.log("main", 0))
}

func TestRunForksAndIgnoresSigterm(t *testing.T) {
	t.Parallel()
	c := startRun(t, withGrace(newPod(never, escaping(t, "main"), container("other", restartPodOn88)), 1))
	c.expect(`
		main#1 running
		other#1 running`)
	c.exit("other", 88)
	c.expect(`
		other#1 exited(88)
		pod PodRestarting: Container other exited with code 88, triggering pod restart
		main Killing: Stopping container main, the pod is being restarted
		main#1 exited(137)
		main#2 running
		other#2 running`)
	require.Greater(t, len(processesOf(c.pod.Name)), 8)
	// Its descendants end with it.
	c.exit("main", 7)
	c.expect("main#2 exited(7)")
	left := slices.DeleteFunc(processesOf(c.pod.Name), func(p string) bool { return strings.Contains(p, "/bwrap --") })
	require.Len(t, left, 3, "other's two and the parent")
	c.exit("other", 0)
	c.ends(exitFailed, `
		other#2 exited(0)
		pod PodFailed
		pod Failed restarts=1 main=1 other=1`)
}

// nohup makes its command ignore SIGHUP.
func TestRunIgnoresHangupUnderNohup(t *testing.T) {
	t.Parallel()
	c := newCommand(t, []*v1.Pod{newPod(never, container("main"))})
	c.cmd.Path, c.cmd.Args = "/bin/sh", append([]string{"sh", "-c", `trap '' HUP; exec "$0" "$@"`, executable(t)}, c.cmd.Args[1:]...)
	c.start().read()
	c.expect("main#1 running")
	c.signal(syscall.SIGHUP)
	c.exit("main", 0)
	c.ends(exitSucceeded, `
		main#1 exited(0)
		pod PodSucceeded
		pod Succeeded restarts=0 main=0`)
}

// The tests pass under nohup, and in the background of a script.
func TestRunTestsUnderNohup(t *testing.T) {
	t.Parallel()
	needBubblewrap(t)
	tests := "TestRunStops|TestRunDeletion|TestRunIgnoresHangupUnderNohup"
	output, err := exec.Command("/bin/sh", "-c", `trap '' HUP INT; exec "$0" -test.v -test.run "^($1)\$"`, executable(t), tests).CombinedOutput()
	require.NoError(t, err, "%s", output)
	for _, name := range strings.Split(tests, "|") {
		require.Contains(t, string(output), "--- PASS: "+name)
	}
}

func executable(t *testing.T) string {
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// The second signal kills the pods. Ctrl-C counts however soon it comes.
func TestRunSecondSignal(t *testing.T) {
	t.Parallel()
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(second.String(), func(t *testing.T) {
			t.Parallel()
			c := startRun(t, newPod(always, escaping(t, "main"), container("other", preStop("sleep 1000"))))
			c.expect(`
				... other#1 running
				> interrupt`)
			if second == syscall.SIGINT {
				c.signal(second)
			} else {
				c.expect(`
					main Killing: Stopping container main
					other Killing: Stopping container other`)
				c.signalUntilEnd(second)
			}
			require.Equal(t, 128+int(second), c.wait())
			c.requireNoProcess()
		})
	}
}

func (c *command) requireOnlyLogs() {
	c.t.Helper()
	entries, err := filepath.Glob(filepath.Join(c.root, "*", "*"))
	require.NoError(c.t, err)
	for _, e := range entries {
		require.Contains(c.t, []string{"lock", "logs"}, filepath.Base(e))
	}
}

// requireNoProcess waits until all processes of the pod have ended. It is for commands
// that were killed and could not wait themselves.
func (c *command) requireNoProcess() {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return len(processesOf(c.pod.Name)) == 0 }, patience, time.Millisecond)
}

// processesOf returns the processes that have a text in their arguments or their
// environment, except zombies.
func processesOf(text string) []string {
	var found []string
	proc, _ := os.ReadDir("/proc")
	for _, p := range proc {
		if p.Name()[0] < '1' || p.Name()[0] > '9' {
			continue
		}
		dir := filepath.Join("/proc", p.Name())
		arguments, err1 := os.ReadFile(filepath.Join(dir, "cmdline"))
		environment, err2 := os.ReadFile(filepath.Join(dir, "environ"))
		if errors.Join(err1, err2) == nil && bytes.Contains(slices.Concat(arguments, environment), []byte(text)) {
			found = append(found, p.Name()+": "+string(bytes.ReplaceAll(arguments, []byte{0}, []byte{' '})))
		}
	}
	return found
}
