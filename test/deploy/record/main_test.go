// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/test/deploy"
)

func TestRecord(t *testing.T) {
	for _, name := range []string{"recording.prom", "recording.prom.gz"} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if n++; n == 2 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintf(w, "# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys{type=\"pod\"} %d\n", n)
			if n == 5 {
				cancel()
			}
		}))
		token := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
		path := filepath.Join(t.TempDir(), name)
		r := &recorder{url: server.URL, tokenFile: token, every: time.Millisecond, duration: time.Minute, client: server.Client()}
		require.NoError(t, record(ctx, r, path))
		server.Close()
		cancel()
		require.Equal(t, 1, r.failed)
		scrapes, err := deploy.ReadRecording(path)
		require.NoError(t, err)
		require.Len(t, scrapes, r.scrapes)
		require.GreaterOrEqual(t, len(scrapes), 3) // The context may end the last one.
		require.Contains(t, string(scrapes[1].Metrics), "} 3\n")
	}
}

func TestRecordOfNothing(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	r := &recorder{url: server.URL, every: time.Millisecond, duration: time.Minute, client: server.Client()}
	err := record(t.Context(), r, filepath.Join(t.TempDir(), "recording.prom"))
	require.ErrorContains(t, err, "404 Not Found")
}
