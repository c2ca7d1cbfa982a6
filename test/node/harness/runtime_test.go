// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The cgroups of a node are found by its log alone, because containerd forgets a container
// whose start is cancelled.
func TestLoggedIDs(t *testing.T) {
	work := t.TempDir()
	log := func(run, text string) {
		dir := filepath.Join(work, "logs", run)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, runtimeLog), []byte(text), 0o644))
	}
	id := func(c string) string { return strings.Repeat(c, 64) }
	log("run-1-e2e", `msg="connecting to shim `+id("b")+`"`+"\n"+`msg="container \"`+id("a")+`\""`+"\n"+id("b")+"\nsha256:"+strings.Repeat("c", 40))
	log("run-12-e2e", id("d"))
	found, err := loggedIDs(filepath.Join(work, "run-1"))
	require.NoError(t, err)
	assert.Equal(t, []string{id("a"), id("b")}, found)
	assert.Equal(t, []string{"k8s.io/" + id("a")}, containerd{}.cgroups(id("a")))
	found, err = loggedIDs(filepath.Join(work, "run-2"))
	require.NoError(t, err)
	assert.Empty(t, found)
}
