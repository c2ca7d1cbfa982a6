// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	_ "embed"
	"html/template"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Parse(page))

// HTML returns the report with charts as a page that needs no other file and no network.
func (r *Report) HTML(charts []chart.Chart) ([]byte, error) {
	var drawings []template.HTML
	for _, c := range charts {
		drawings = append(drawings, template.HTML(chart.SVG(c)))
	}
	tables := r.tables()
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{
		"Report": r, "Costs": r.costs(), "Advice": r.advice(), "Charts": drawings,
		"Sums": tables[0], "Recoveries": tables[1], "OverTime": tables[2],
	})
	return b.Bytes(), err
}
