// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

const prometheusDir = "../../deploy/prometheus"

// promtool runs the promtool of go.mod in the folder of the rules. Without
// service discovery it is built in half of the time.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"tool", "promtool"}, args...)...)
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -tags=remove_all_sd")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	t.Logf("%s", output)
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", prometheusDir+"/rules.yaml")
	promtool(t, "test", "rules", prometheusDir+"/rules_test.yaml")
}
