// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const prometheusDir = "../../deploy/prometheus"

// ruleTests is what rules_test.yaml uses of the format of promtool's tests.
// promtool itself is not built for it: it links every service discovery.
type ruleTests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	FuzzyCompare       bool           `yaml:"fuzzy_compare"` // No expression is tested whose value would be compared.
	Tests              []ruleTest     `yaml:"tests"`
}

type ruleTest struct {
	Name        string         `yaml:"name"`
	Interval    model.Duration `yaml:"interval"`
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	AlertRuleTests []struct {
		EvalTime  model.Duration `yaml:"eval_time"`
		AlertName string         `yaml:"alertname"`
		ExpAlerts []firing       `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

// firing is an alert that fires.
type firing struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

// requireRules requires that the tests of a file pass.
func requireRules(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var all ruleTests
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&all))
	require.NotEmpty(t, all.Tests)
	for i := range all.RuleFiles {
		all.RuleFiles[i] = filepath.Join(filepath.Dir(file), all.RuleFiles[i])
	}
	for _, test := range all.Tests {
		t.Run(test.Name, func(t *testing.T) { test.run(t, time.Duration(all.EvaluationInterval), all.RuleFiles) })
	}
}

// run evaluates the rules at each interval and compares the alerts at the
// evaluation times, which must be multiples of it.
func (test ruleTest) run(t *testing.T, interval time.Duration, files []string) {
	var load strings.Builder
	fmt.Fprintf(&load, "load %s\n", test.Interval)
	for _, in := range test.InputSeries {
		fmt.Fprintf(&load, "  %s %s\n", in.Series, in.Values)
	}
	loader, err := promqltest.NewLazyLoader(load.String(), promqltest.LazyLoaderOpts{})
	require.NoError(t, err)
	defer loader.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()),
		Appendable: loader.Storage(),
		Context:    context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(),
		Parser:     parser.NewParser(parser.Options{}),
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, files...)
	require.Empty(t, errs)
	named := map[string]bool{}
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			require.False(t, named[rule.Name()], "two alerts are named %s", rule.Name())
			named[rule.Name()] = true
		}
	}
	compared := 0
	for at := time.Duration(0); compared < len(test.AlertRuleTests); at += interval {
		require.LessOrEqual(t, at, 24*time.Hour, "an eval_time is not a multiple of the interval")
		fires := map[string][]firing{}
		loader.WithSamplesTill(time.UnixMilli(at.Milliseconds()), func(err error) { require.NoError(t, err) })
		for _, group := range groups {
			group.Eval(context.Background(), time.UnixMilli(at.Milliseconds()))
			for _, rule := range group.Rules() {
				require.NoError(t, rule.LastError())
			}
			for _, rule := range group.AlertingRules() {
				fires[rule.Name()] = append(fires[rule.Name()], firingOf(rule)...)
			}
		}
		for _, want := range test.AlertRuleTests {
			if time.Duration(want.EvalTime) != at {
				continue
			}
			require.True(t, named[want.AlertName], "there is no alert %q", want.AlertName)
			require.ElementsMatch(t, want.ExpAlerts, fires[want.AlertName], "%s at %s", want.AlertName, at)
			compared++
		}
	}
}

// firingOf returns the alerts of a rule that fire.
func firingOf(rule *rules.AlertingRule) []firing {
	found := []firing{}
	for _, alert := range rule.ActiveAlerts() {
		if alert.State == rules.StateFiring {
			set := alert.Labels.Map()
			delete(set, model.AlertNameLabel) // The tests do not repeat it.
			found = append(found, firing{Labels: set, Annotations: alert.Annotations.Map()})
		}
	}
	return found
}

func TestRules(t *testing.T) { requireRules(t, prometheusDir+"/rules_test.yaml") }
