// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"regexp"
	"strings"
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
	// The metrics of others are in sections of their own.
	before, rest, _ := strings.Cut(string(doc), "\n### Upstream's metrics\n")
	_, after, found := strings.Cut(rest, "\n## ")
	require.True(t, found)
	requireMetrics(t, before+after, true)
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(rules, -1)
	require.NotEmpty(t, alerts)
	for _, alert := range alerts {
		require.Contains(t, string(doc), "`"+string(alert[1])+"`")
		require.Contains(t, string(tests), string(alert[1]))
	}
}

// The queries for metrics of others have results, which may be NaN: a quantile of no observations. The recording of a kubelet
// is one of make node-e2e, with containers that crash and pods that restart in place (docs/results/kubelet-restart.md). That
// of kube-state-metrics is written by hand, with the labels of its documentation.
func TestQueries(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operators.md")
	require.NoError(t, err)
	for name, recording := range map[string]string{"Upstream's metrics": "kubelet.prom.gz", "kube-state-metrics": "kube-state-metrics.prom"} {
		t.Run(name, func(t *testing.T) {
			_, section, found := strings.Cut(string(doc), "\n### "+name+"\n")
			require.True(t, found)
			section, _, _ = strings.Cut(section, "\n##")
			scrapes, err := ReadRecording("testdata/" + recording)
			require.NoError(t, err)
			db, err := NewDatabase(scrapes)
			require.NoError(t, err)
			defer db.Close()
			queries := regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([^`]+)` \\|$").FindAllStringSubmatch(section, -1)
			require.Len(t, queries, strings.Count(section, "\n|")-2, "every row has a query")
			for _, query := range queries {
				series, err := db.Query(query[2], db.Step())
				require.NoError(t, err, query[1])
				require.NotEmpty(t, series, query[1])
			}
		})
	}
}
