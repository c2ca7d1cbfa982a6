// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecord(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\necho \"$*\" >>%s\n[ \"$2\" != unknown ]\n", said), 0o755))
	require.NoError(t, Record(t.Context(), program, "node-e2e", true, ""))
	require.NoError(t, Record(t.Context(), program, "node-timing", false, "short form"))
	require.NoError(t, Record(t.Context(), "", "node-e2e", true, ""))
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	require.NoError(t, Record(interrupted, program, "node-e2e", false, ""))
	require.ErrorContains(t, Record(t.Context(), program, "unknown", true, ""), "storing the result of unknown")
	data, err := os.ReadFile(said)
	require.NoError(t, err)
	assert.Equal(t, "record node-e2e\nrecord node-timing short form --failed\nrecord unknown\n", string(data))
}
