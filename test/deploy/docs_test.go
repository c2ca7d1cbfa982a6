// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEverythingIsExplained(t *testing.T) {
	rules, err := os.ReadFile(prometheusDir + "/rules.yaml")
	require.NoError(t, err)
	tests, err := os.ReadFile(prometheusDir + "/rules_test.yaml")
	require.NoError(t, err)
	doc, err := os.ReadFile("../../docs/operators.md")
	require.NoError(t, err)
	requireMetrics(t, string(doc), true)
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(rules, -1)
	require.NotEmpty(t, alerts)
	for _, alert := range alerts {
		require.Contains(t, string(doc), "`"+string(alert[1])+"`")
		require.Contains(t, string(tests), string(alert[1]))
	}
}
