// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
)

// setting is a combination of gates and field. The test tries it in every way to
// set these.
type setting struct {
	name string
	// keps are the rows of the KEPs' conflict tables that this is, from 1, and
	// table is the effective initial value that they give. In some rows that is
	// not the initial value but the configured maximum. What counts is the prose
	// above the tables, which newCrashLoopBackOff of pkg/kubelet follows: a
	// maximum above the initial value leaves that alone.
	keps, table string
	gates       []string
	// field is crashLoopBackOff.maxContainerRestartPeriod.
	field string
	want  outcome
}

// The rows of the tables, by the numbers of their KEPs. KEP-4603 is there in
// two versions: that of 2024 still had the configurable maximum.
var kepRows = map[string]int{"5593": 6, "4603-2024": 10, "4603": 5}

var settings = []setting{
	{"today's behavior", "5593/1 4603-2024/1 4603/1", "10s", []string{maxOff, normal}, "", outcome{curve: defaultCurve}},
	{"new default only", "4603-2024/2 4603/2", "1s", []string{maxOff, reduced}, "", outcome{curve: reducedCurve}},
	{"faster per node config", "5593/2 4603-2024/3", "2s", []string{maxOn, normal}, "2s", outcome{curve: "[0s 2s], initial 2s Clamped, maximum 2s PerNodeMaximum"}},
	{"faster per node config", "4603-2024/4 4603/3", "2s", []string{maxOn, reduced}, "2s", outcome{curve: "[0s 1s 2s], initial 1s ReducedDecay, maximum 2s PerNodeMaximum"}},
	{"slower per node config", "5593/3", "10s", []string{maxOn, normal}, "10s", outcome{curve: "[0s 10s], initial 10s Default, maximum 10s PerNodeMaximum"}},
	{"slower per node config", "4603-2024/5 4603/4", "10s", []string{maxOn, reduced}, "10s", outcome{curve: "[0s 1s 2s 4s 8s 10s], initial 1s ReducedDecay, maximum 10s PerNodeMaximum"}},
	{"slower per node config", "4603-2024/6 4603/5", "300s", []string{maxOn, reduced}, "300s", outcome{curve: "[0s 1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 5m0s], initial 1s ReducedDecay, maximum 5m0s PerNodeMaximum"}},
	{"slower per node config", "5593/4 4603-2024/7", "11s", []string{maxOn, normal}, "11s", outcome{curve: "[0s 10s 11s], initial 10s Default, maximum 11s PerNodeMaximum"}},
	{"slower per node config", "5593/5 4603-2024/8", "300s", []string{maxOn, normal}, "300s", outcome{curve: curve300s}},
	{"invalid per node config", "5593/6 4603-2024/9", "kubelet crashes", []string{maxOn, normal}, "301s", outcome{err: outOfRange}},
	{"invalid per node config", "4603-2024/10", "kubelet crashes", []string{maxOn, reduced}, "301s", outcome{err: outOfRange}},

	{name: "nothing", want: outcome{curve: defaultCurve}},
	{name: "reduced decay alone", gates: []string{reduced}, want: outcome{curve: reducedCurve}},
	{name: "gate on, no maximum", gates: []string{maxOn}, want: outcome{curve: defaultCurve}},
	{name: "both gates, no maximum", gates: []string{maxOn, reduced}, want: outcome{curve: reducedCurve}},
	{name: "gate off, maximum", gates: []string{maxOff}, field: "4s", want: outcome{curve: defaultCurve, warns: true}},
	{name: "gate off, maximum out of range", gates: []string{maxOff}, field: "301s", want: outcome{curve: defaultCurve, warns: true}},
	{name: "reduced decay, gate off, maximum", gates: []string{maxOff, reduced}, field: "4s", want: outcome{curve: reducedCurve, warns: true}},
	{name: "delayed first restart", gates: []string{delayed}, want: outcome{curve: "[10s 20s 40s 1m20s 2m40s 5m0s], initial 10s Default, maximum 5m0s Default"}},
	{name: "delayed first restart, maximum", gates: []string{delayed}, field: "4s", want: outcome{curve: "[4s], initial 4s Clamped, maximum 4s PerNodeMaximum"}},

	// They change no delay of the curve.
	{name: "back to upstream's decisions", gates: []string{"KubeletStrictCrashLoopBackOff=false", "KubeletRestartAllContainersBackOff=false"}, want: outcome{curve: defaultCurve}},

	{name: "least maximum", field: "1s", want: outcome{curve: "[0s 1s], initial 1s Clamped, maximum 1s PerNodeMaximum"}},
	{name: "below the initial value", field: "4s", want: outcome{curve: curve4s}},
	{name: "greatest maximum", field: "300s", want: outcome{curve: curve300s}},
	{name: "in other units", field: "0.5m", want: outcome{curve: "[0s 10s 20s 30s], initial 10s Default, maximum 30s PerNodeMaximum"}},
	{name: "just too low", field: "999ms", want: outcome{err: outOfRange}},
	{name: "just too high", field: "300.9s", want: outcome{err: outOfRange}},
	{name: "zero", field: "0s", want: outcome{err: outOfRange}},
	{name: "negative", field: "-1s", want: outcome{err: outOfRange}},
	{name: "bare integer", field: "4", want: outcome{err: "cannot unmarshal number into Go"}},
	{name: "no unit", field: `"4"`, want: outcome{err: "missing unit in duration"}},
	{name: "null", field: "null", want: outcome{curve: defaultCurve}},
}

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// run is one start of a kubelet.
type run struct {
	setting
	// how says in words where gates and field are set.
	how  string
	args []string
	// files are the configuration file, where there is one, and drop-ins.
	files map[string]string
}

func file(name, content string, want outcome) run {
	return run{setting{name: name, want: want}, "file", nil, map[string]string{configFile: header + content}}
}

// dropins takes the names and the contents of files in turn.
func dropins(name string, want outcome, files ...string) run {
	r := run{setting: setting{name: name, want: want}, how: "drop-in", files: map[string]string{}}
	for i := 0; i < len(files); i += 2 {
		r.files[files[i]] = header + files[i+1]
	}
	if r.files[configFile] != "" {
		r.how = "file and drop-in"
	}
	return r
}

func period(value string) string {
	return "crashLoopBackOff: {maxContainerRestartPeriod: " + value + "}\n"
}

func yamlGates(gates ...string) string {
	return "featureGates: {" + strings.ReplaceAll(strings.Join(gates, ", "), "=", ": ") + "}\n"
}

// runs are the ways in which the setting can be made.
func (s setting) runs() []run {
	var all []run
	add := func(how, gates, field string) {
		r := run{setting: s, how: how, files: map[string]string{}}
		switch gates {
		case "flag beside a file":
			r.files[configFile] = ""
			fallthrough
		case "flag":
			r.args = []string{"--feature-gates=" + strings.Join(s.gates, ",")}
		case "file":
			r.files[configFile] = yamlGates(s.gates...)
		case "drop-in":
			r.files[dropin] = yamlGates(s.gates...)
		}
		switch field {
		case "file":
			r.files[configFile] += period(s.field)
		case "drop-in":
			r.files[dropin] += period(s.field)
		}
		for name := range r.files {
			r.files[name] = header + r.files[name]
		}
		all = append(all, r)
	}
	switch {
	case len(s.gates) == 0 && s.field == "":
		add("no file", "", "")
		add("file", "file", "")
		add("drop-in", "drop-in", "")
	case len(s.gates) == 0:
		add("file", "", "file")
		add("drop-in", "", "drop-in")
	case s.field == "":
		for _, gates := range []string{"flag", "flag beside a file", "file", "drop-in"} {
			add(gates, gates, "")
		}
	default:
		for _, gates := range []string{"flag", "file", "drop-in"} {
			for _, field := range []string{"file", "drop-in"} {
				add(gates+" and "+field, gates, field)
			}
		}
	}
	return all
}
