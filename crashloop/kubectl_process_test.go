// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// start starts the plugin with this API server as a process.
func (f *fakeAPI) start(t *testing.T, stdout io.Writer, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	stderr = &bytes.Buffer{}
	cmd = exec.Command(os.Args[0])
	cmd.Args = append([]string{pluginName, "--server", f.URL}, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, stderr
}

// A watch ends when nobody reads its output, even if nothing changes.
func TestPluginTopUnread(t *testing.T) {
	api := newFakeAPI(t, map[string][]any{eventsPath: {noEvents()}, podsPath: {podList("10", crashing(t, "web", "20s", 3))},
		podsPath + "?watch": {http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}})
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd, stderr := api.start(t, writer, "top", "-w")
	writer.Close()
	_, err = reader.Read(make([]byte, 1))
	require.NoError(t, err)
	reader.Close()
	time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
	cmd.Wait()
	require.Equal(t, exitUnread, cmd.ProcessState.ExitCode())
	require.Empty(t, stderr.String())
}

// The libraries log to stderr, too.
func TestPluginLogsNothing(t *testing.T) {
	api := newFakeAPI(t, map[string][]any{eventsPath: {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.RequestURI(), http.StatusFound)
	})}})
	cmd, stderr := api.start(t, nil, "top", "-o", "json")
	cmd.Wait()
	require.Regexp(t, `^\{"severity":"error","detail":"Get .*: stopped after 10 redirects"\}\n$`, stderr.String())
}
