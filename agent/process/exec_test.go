// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
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
