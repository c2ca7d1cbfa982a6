// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Dashboard is what is looked at of a dashboard of Grafana.
type Dashboard struct {
	Title         string  `json:"title"`
	UID           string  `json:"uid"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []Panel `json:"panels"`
	Templating    struct {
		List []Variable `json:"list"`
	} `json:"templating"`
}

// Variable is what one chooses above the panels.
type Variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
	AllValue   string `json:"allValue"`
}

// Panel is one of a dashboard.
type Panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	GridPos     GridPos    `json:"gridPos"`
	Datasource  Datasource `json:"datasource"`
	Targets     []Target   `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit     string   `json:"unit"`
			Decimals *int     `json:"decimals"`
			Min      *float64 `json:"min"`
			Custom   struct {
				AxisLabel         string `json:"axisLabel"`
				ScaleDistribution struct {
					Type string `json:"type"`
				} `json:"scaleDistribution"`
			} `json:"custom"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

// GridPos is where a panel is, in a grid of 24 columns.
type GridPos struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// Datasource is where a panel has its data from.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Target is an expression of a panel.
type Target struct {
	RefID        string     `json:"refId"`
	Datasource   Datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
}

// ReadDashboard reads a dashboard.
func ReadDashboard(path string) (*Dashboard, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := &Dashboard{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// Expression is the target's with the values of variables, as Grafana sets them
// where all nodes are chosen.
func (t Target) Expression(rateInterval time.Duration) string {
	return strings.NewReplacer("$__rate_interval", fmt.Sprintf("%dms", rateInterval.Milliseconds()), "$node", ".*").Replace(t.Expr)
}

// Legend is the name of a series.
func (t Target) Legend(metric labels.Labels) string {
	legend := t.LegendFormat
	metric.Range(func(l labels.Label) { legend = strings.ReplaceAll(legend, "{{"+l.Name+"}}", l.Value) })
	return legend
}
