// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/report"
	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
)

// formats are those of the standard output.
var formats = []string{"csv", "html", "json", "svg", "table"}

// writeReport writes the report in a format. It writes nothing if it cannot make the report.
func writeReport(w io.Writer, format string, r *report.Report, result *fleet.Result) error {
	var data []byte
	var err error
	switch format {
	case "csv":
		data, err = r.CSV()
	case "html":
		data, err = r.HTML(report.Charts(result))
	case "json":
		data, err = r.JSON()
	case "svg":
		data = chart.SVG(report.Charts(result)...)
	case "table":
		data = r.Table()
	}
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		return &Failure{Err: err}
	}
	return nil
}
