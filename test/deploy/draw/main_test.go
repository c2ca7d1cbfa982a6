// SPDX-License-Identifier: Apache-2.0

package main

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/test/deploy"
)

// Every panel is drawn, also from a recording of a kubelet that has done nothing.
func TestDraw(t *testing.T) {
	const dashboard = "../../../deploy/grafana/dashboard.json"
	d, err := deploy.ReadDashboard(dashboard)
	require.NoError(t, err)
	idle := filepath.Join(t.TempDir(), "idle.prom")
	require.NoError(t, os.WriteFile(idle, []byte("# scrape 2026-01-01T00:00:00Z\n# scrape 2026-01-01T00:00:15Z\n# scrape 2026-01-01T00:00:30Z\n"), 0o644))
	for name, recording := range map[string]string{"synthetic": "", "idle": idle} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			require.NoError(t, run(dashboard, recording, out))
			files, err := filepath.Glob(out + "/*.png")
			require.NoError(t, err)
			require.Len(t, files, len(d.Panels)+1)
			for _, file := range files {
				f, err := os.Open(file)
				require.NoError(t, err)
				_, err = png.Decode(f)
				require.NoError(t, err)
				f.Close()
			}
		})
	}
}
