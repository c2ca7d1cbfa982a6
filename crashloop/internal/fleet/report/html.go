// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/chart"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Parse(page))

// HTML returns the report with charts as a page that needs no other file and no network.
func (r *Report) HTML(charts []chart.Chart) ([]byte, error) {
	var drawings []template.HTML
	for _, c := range charts {
		svg, err := chart.SVG(c)
		if err != nil {
			return nil, err
		}
		i := bytes.Index(svg, []byte("<svg"))
		if i < 0 {
			return nil, fmt.Errorf("%s: the drawing has no svg element", c.Title)
		}
		drawings = append(drawings, template.HTML(svg[i:]))
	}
	tables := r.tables()
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{
		"Report": r, "Costs": r.costs(), "Advice": r.advice(), "Charts": drawings,
		"Sums": tables[0], "Recoveries": tables[1], "OverTime": tables[2],
	})
	return b.Bytes(), err
}
