// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
)

// Common manifests run. Each pod checks its environment and files, and then prints that
// it serves, or is a stand-in for an image.
func TestRunRealManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/real/*")
	require.NoError(t, err)
	require.Len(t, files, 12)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			args := []string{"-o", "plain", "--timeout", patience.String(), "--max-restarts", "1", "-f", file}
			c := newCommand(t, []*v1.Pod{newPod(never)}, args...).start()
			served, output := false, ""
			for lines := bufio.NewScanner(c.stdout); lines.Scan(); {
				output += lines.Text() + "\n"
				if strings.HasSuffix(lines.Text(), "| serving") || strings.HasSuffix(lines.Text(), "| stand-in for the image \"nginx:1.29\": it runs until it is stopped") {
					served = true
					c.cmd.Process.Signal(os.Interrupt) // A Job may have ended.
				}
			}
			require.True(t, served, output)
			require.Contains(t, []int{exitSucceeded, 130}, c.wait(), output)
			require.NotContains(t, c.errors(), "error")
		})
	}
}

// An ordinary user needs no other flag.
func TestRealManifestsAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("TestRunRealManifests runs as one")
	}
	needBubblewrap(t)
	dir := outsideTmp(t)
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "testdata/real"), os.DirFS("testdata/real")))
	test := filepath.Join(dir, "crashloop.test")
	// Not in this process: a command that another test starts meanwhile would have the file open for writing.
	require.NoError(t, exec.Command("cp", "/proc/"+strconv.Itoa(os.Getpid())+"/exe", test).Run())
	const nobody = 65534
	cmd := exec.Command(test, "-test.v", "-test.run", "^TestRunRealManifests$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setpgid: true}
	output, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	require.NoError(t, err, "%s", output)
	require.Equal(t, 12, strings.Count(string(output), "--- PASS: TestRunRealManifests/"), "%s", output)
}

// A stand-in takes the place of a command of the image, with what belongs to that command.
func TestStandIn(t *testing.T) {
	t.Parallel()
	down := &v1.Probe{ProbeHandler: execProbe("exit 1"), PeriodSeconds: 1, FailureThreshold: 1}
	pod := newPod(always, v1.Container{Name: "setup", Image: initPrefix + "setup"}, v1.Container{Name: "proxy", Image: "proxy", LivenessProbe: down, WorkingDir: "/app",
		Lifecycle: &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: execProbe("exit 1").Exec}}, Env: []v1.EnvVar{{Name: "PATH", Value: "/app"}}}, container("main"))
	c := startRun(t, pod, "-")
	c.expect(`
		setup#1 running
		setup#1 exited(0)
		... main#1 running
		> interrupt
		... proxy#1 exited(0)
		... pod Failed restarts=0 setup=0 proxy=0 main=0`)
	require.Equal(t, 130, c.wait())
	require.Equal(t, []string{"stand-in for the image \"proxy\": it runs until it is stopped"}, c.log("proxy", 0))
	require.Contains(t, c.errors(), `"field":"spec.containers[0]","detail":"no command: a stand-in for the image runs, without probes and hooks; it runs until it is stopped (--command proxy='...' runs a command instead)"`)
}

func TestCheckRealManifests(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitSucceeded, run([]string{"check", "-f", "testdata/real"}, nil, &stdout, &stderr), &stdout)
	require.Equal(t, 12, strings.Count(stdout.String(), " in testdata/real/"))
}

func TestGRPCProbe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, service := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, service)
	go server.Serve(listener)
	defer server.Stop()
	service.SetServingStatus("shop", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	address := listener.Addr().String()

	_, ok, err := checkHealth(nil)(t.Context(), address, "")
	require.NoError(t, err)
	require.True(t, ok)
	output, ok, err := checkHealth(nil)(t.Context(), address, "shop")
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, "service unhealthy (responded with NOT_SERVING)", output)
	output, ok, err = checkHealth(nil)(t.Context(), address, "none")
	require.NoError(t, err)
	require.False(t, ok)
	require.Contains(t, output, "unknown service")
	server.Stop()
	output, ok, err = checkHealth(nil)(t.Context(), address, "")
	require.NoError(t, err)
	require.False(t, ok)
	require.Contains(t, output, "connection refused")
}
