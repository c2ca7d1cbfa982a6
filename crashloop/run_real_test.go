// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
)

// Common manifests run. Each pod checks its environment and files, and then prints that
// it serves.
func TestRunRealManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/real/*")
	require.NoError(t, err)
	require.Len(t, files, 12)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			args := []string{"-o", "plain", "--timeout", patience.String(), "--max-restarts", "1", "-f", file}
			if strings.Contains(file, "image-only") {
				args = append(args, "--command", `nginx=echo "$1"; exec sleep 1000`)
			}
			c := newCommand(t, []*v1.Pod{newPod(never)}, args...).start()
			served, output := false, ""
			for lines := bufio.NewScanner(c.stdout); lines.Scan(); {
				output += lines.Text() + "\n"
				if strings.HasSuffix(lines.Text(), "| serving") {
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
