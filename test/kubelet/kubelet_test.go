// SPDX-License-Identifier: Apache-2.0

// Package kubelet starts a kubelet with every kind of container restart
// configuration, and reads its log and its exit: first the rows of the conflict
// tables of KEP-4603 and KEP-5593, each with every way to set gates and field,
// then the effect of files and drop-ins on the field.
//
//	KUBELET=/path/to/kubelet [STOCK_KUBELET=/path/to/kubelet] go test -v ./test/kubelet
//
// KUBELET is a kubelet with all patches; without it the test is skipped, because
// building one takes minutes. STOCK_KUBELET, one without the patches, gets a
// column in the table that -v prints, and decides nothing. The kubelets run as
// an ordinary user with nothing to connect to. The test kills them as soon as they
// have logged the result of their configuration.
package kubelet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The curves, as outcome.curve has them.
const (
	defaultCurve = "[0s 10s 20s 40s 1m20s 2m40s 5m0s], initial 10s Default, maximum 5m0s Default"
	reducedCurve = "[0s 1s 2s 4s 8s 16s 32s 1m0s], initial 1s ReducedDecay, maximum 1m0s ReducedDecay"
	curve4s      = "[0s 4s], initial 4s Clamped, maximum 4s PerNodeMaximum"
	curve8s      = "[0s 8s], initial 8s Clamped, maximum 8s PerNodeMaximum"
	curve300s    = "[0s 10s 20s 40s 1m20s 2m40s 5m0s], initial 10s Default, maximum 5m0s PerNodeMaximum"
)

const (
	maxOn   = "KubeletCrashLoopBackOffMax=true"
	maxOff  = "KubeletCrashLoopBackOffMax=false"
	reduced = "ReduceDefaultCrashLoopBackOffDecay=true"
	normal  = "ReduceDefaultCrashLoopBackOffDecay=false"
	delayed = "KubeletDelayFirstContainerRestart=true"
)

const outOfRange = "must be set between 1s and 300s"

// The files of a run. Whether there is a drop-in directory depends on whether
// there is a file in it.
const (
	configFile = "kubelet.yaml"
	dropinDir  = "kubelet.conf.d/"
	dropin     = dropinDir + "10.conf"
)

// special are runs that are about the files themselves.
var special = []run{
	{setting{name: "flag against drop-in", want: outcome{curve: curve4s}}, "gate off by drop-in, on by flag",
		[]string{"--feature-gates=" + maxOn}, map[string]string{dropin: header + yamlGates(maxOff) + period("4s")}},
	{setting{name: "drop-in against file", want: outcome{curve: curve4s}}, "gate off by file, on by drop-in",
		nil, map[string]string{configFile: header + yamlGates(maxOff) + period("4s"), dropin: header + yamlGates(maxOn)}},
	// By file alone, for reasons that are not the back-off: defaults of the fields
	// of other beta gates are filled in before a flag or a drop-in counts.
	file("all beta gates off", yamlGates("AllBeta=false")+period("4s"), outcome{curve: defaultCurve, warns: true}),
	file("empty object", "crashLoopBackOff: {}\n", outcome{curve: defaultCurve}),
	file("null object", "crashLoopBackOff: null\n", outcome{curve: defaultCurve}),
	dropins("empty object keeps what the file has", outcome{curve: curve4s}, configFile, period("4s"), dropin, "crashLoopBackOff: {}\n"),
	dropins("null object removes what the file has", outcome{curve: defaultCurve}, configFile, period("4s"), dropin, "crashLoopBackOff: null\n"),
	dropins("null removes what the file has", outcome{curve: defaultCurve}, configFile, period("4s"), dropin, period("null")),
	dropins("null after a drop-in", outcome{curve: defaultCurve}, dropin, period("4s"), dropinDir+"20.conf", "crashLoopBackOff: null\n"),
	// A file is decoded with regard to case, and an unknown field dropped. The
	// drop-ins are merged into JSON, which is decoded without regard to case.
	file("other case", "crashloopbackoff: {maxContainerRestartPeriod: 4s}\n", outcome{curve: defaultCurve}),
	dropins("other case", outcome{curve: curve4s}, dropin, "crashloopbackoff: {maxContainerRestartPeriod: 4s}\n"),
	file("other case of the subfield", "crashLoopBackOff: {maxcontainerrestartperiod: 4s}\n", outcome{curve: defaultCurve}),
	dropins("other case of the subfield", outcome{curve: curve4s}, dropin, "crashLoopBackOff: {maxcontainerrestartperiod: 4s}\n"),
	file("unknown field", "crashLoopBackOffs: {maxContainerRestartPeriod: 4s}\n", outcome{curve: defaultCurve}),
	dropins("unknown field", outcome{curve: defaultCurve}, dropin, "crashLoopBackOffs: {maxContainerRestartPeriod: 4s}\n"),
	file("unknown subfield", "crashLoopBackOff: {maxSeconds: 4}\n", outcome{curve: defaultCurve}),
	dropins("unknown subfield", outcome{curve: defaultCurve}, dropin, "crashLoopBackOff: {maxSeconds: 4}\n"),
	dropins("two drop-ins, the last counts", outcome{curve: curve8s}, dropin, period("4s"), dropinDir+"20.conf", period("8s")),
	dropins("the order is lexical", outcome{curve: curve8s}, dropin, period("4s"), dropinDir+"9.conf", period("8s")),
	dropins("subdirectory in lexical order", outcome{curve: curve8s}, dropin, period("4s"), dropinDir+"20/05.conf", period("8s")),
	dropins("other extension", outcome{curve: defaultCurve}, dropinDir+"10.yaml", period("4s")),
	{setting{name: "drop-in without apiVersion", want: outcome{err: "unknown apiVersion/kind: /, Kind=KubeletConfiguration"}}, "drop-in",
		nil, map[string]string{dropin: "kind: KubeletConfiguration\n" + period("4s")}},
	{setting{name: "drop-in without kind", want: outcome{err: "Object 'Kind' is missing"}}, "drop-in",
		nil, map[string]string{dropin: "apiVersion: kubelet.config.k8s.io/v1beta1\n" + period("4s")}},
	{setting{name: "drop-in of another version", want: outcome{err: "unknown apiVersion/kind: kubelet.config.k8s.io/v1, Kind=KubeletConfiguration"}}, "drop-in",
		nil, map[string]string{dropin: "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n" + period("4s")}},
}

// outcome is a kubelet's reaction to its configuration: it either starts or exits
// with an error.
type outcome struct {
	// curve is what the patched kubelet logs, or else what the configuration that
	// the kubelet logs has. It is empty when the kubelet does not start.
	curve string
	// warns says that the kubelet warns of a maximum that is not honored.
	warns bool
	// err is why the kubelet does not start; of the expected one, a part.
	err string
}

// is reports whether got is the expected outcome o.
func (o outcome) is(got outcome) bool {
	if o.err != "" && strings.Contains(got.err, o.err) {
		got.err = o.err
	}
	return o == got
}

func (o outcome) String() string {
	switch {
	case o.err != "":
		return "exits: " + o.err
	case o.warns:
		return o.curve + ", and a warning"
	default:
		return o.curve
	}
}

var (
	curveLine   = regexp.MustCompile(`\] "Container restart back-off" delays="(.*)" initial="(.*)" initialReason="(.*)" maximum="(.*)" maximumReason="(.*)"$`)
	warningLine = regexp.MustCompile(`\] "Container restart back-off is not as configured" warning="crashLoopBackOff\.maxContainerRestartPeriod is set and not honored: `)
	maximumLine = regexp.MustCompile(`^\t  maxContainerRestartPeriod: (.*)$`)
	// startedLine comes once the configuration is valid, and before the kubelet
	// touches anything.
	startedLine = regexp.MustCompile(`\] "Kubelet version" `)
	// failure is in the whole log, because its text may have several lines.
	failure = regexp.MustCompile(`(?ms)\] "command failed" err=(?:"([^\n]*)"$|<\n(.*?)\n >$)|^panic: ([^\n]*)`)
)

// start runs a kubelet in a folder until it exits or has logged that its
// configuration is valid. It returns what was logged as well. A failure of the
// test itself is an error that no run expects.
func start(binary, dir string, r run) (outcome, string) {
	cmd, cancel, err := command(binary, dir, r)
	if err != nil {
		return outcome{err: err.Error()}, ""
	}
	defer cancel()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return outcome{err: err.Error()}, ""
	}
	if err := cmd.Start(); err != nil {
		return outcome{err: err.Error()}, ""
	}
	var got outcome
	var log strings.Builder
	maximum, started := "not set", false
	scanner := bufio.NewScanner(stderr)
	scanner.Buffer(nil, 1<<20)
	for !started && scanner.Scan() {
		line := scanner.Text()
		fmt.Fprintln(&log, line)
		if m := curveLine.FindStringSubmatch(line); m != nil {
			// A second line makes it differ from all that is expected.
			got.curve += fmt.Sprintf("%s, initial %s %s, maximum %s %s", m[1], m[2], m[3], m[4], m[5])
		} else if m := maximumLine.FindStringSubmatch(line); m != nil {
			maximum = m[1]
		}
		got.warns = got.warns || warningLine.MatchString(line)
		started = startedLine.MatchString(line)
	}
	if started {
		_ = cmd.Process.Kill() // It may have ended by itself.
	}
	_, _ = io.Copy(io.Discard, stderr)
	err = cmd.Wait()
	if started {
		if got.curve == "" {
			got.curve = "starts, maximum " + maximum
		}
		return got, log.String()
	}
	if m := failure.FindStringSubmatch(log.String()); m != nil {
		got.err = strings.Join(strings.Fields(m[1]+m[2]+m[3]), " ")
	}
	if got.err == "" || cmd.ProcessState.ExitCode() != 1 {
		got.err = fmt.Sprintf("unexpected end (%v): %s", err, got.err)
	}
	return got, log.String()
}

// command writes the files of a run into the folder and returns the command that
// starts the kubelet with them. It is killed after a minute.
func command(binary, dir string, r run) (*exec.Cmd, context.CancelFunc, error) {
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o755); err != nil {
		return nil, nil, err
	}
	args := append([]string{
		"--root-dir=" + state, "--cert-dir=" + state,
		"--container-runtime-endpoint=unix://" + state + "/none.sock",
		"--enable-server=false", "--healthz-port=0",
		// Whether the host has cgroup v1 is not what this is about.
		"--fail-cgroupv1=false",
	}, r.args...)
	hasDropins := false
	for name, content := range r.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, nil, err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return nil, nil, err
		}
		if name == configFile {
			args = append(args, "--config="+path)
		} else {
			hasDropins = true
		}
	}
	if hasDropins {
		args = append(args, "--config-dir="+filepath.Join(dir, dropinDir))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // Only a failing test waits so long.
	cmd := exec.CommandContext(ctx, binary, args...)
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := os.Chown(state, nobody, nobody); err != nil {
			cancel()
			return nil, nil, err
		}
	}
	return cmd, cancel, nil
}

// reachable returns a copy of the binary in dir where the kubelet runs as
// another user, who may have no access to the binary itself.
func reachable(t *testing.T, binary, dir, name string) string {
	if binary == "" || os.Geteuid() != 0 {
		return binary
	}
	data, err := os.ReadFile(binary)
	require.NoError(t, err)
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, data, 0o755))
	return path
}

// result is the result of a run.
type result struct {
	patched, stock outcome
	log            string
}

func TestConfiguration(t *testing.T) {
	patched, stock := os.Getenv("KUBELET"), os.Getenv("STOCK_KUBELET")
	if patched == "" {
		t.Skip("KUBELET names no kubelet; make test-kubelet builds one and runs this")
	}
	// Not t.TempDir, which only its owner may enter.
	dir, err := os.MkdirTemp("", "kubelet-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	patched = reachable(t, patched, dir, "patched")
	stock = reachable(t, stock, dir, "stock")

	var runs []run
	for _, s := range settings {
		runs = append(runs, s.runs()...)
	}
	runs = append(runs, special...)
	results := make([]result, len(runs))
	var wg sync.WaitGroup
	two := make(chan struct{}, 2)
	for i, r := range runs {
		two <- struct{}{}
		wg.Go(func() {
			defer func() { <-two }()
			res := &results[i]
			res.patched, res.log = start(patched, filepath.Join(dir, fmt.Sprint(i), "patched"), r)
			if stock != "" {
				res.stock, _ = start(stock, filepath.Join(dir, fmt.Sprint(i), "stock"), r)
			}
		})
	}
	wg.Wait()

	shown := map[string]int{}
	for i, r := range runs {
		t.Run(r.name+"/"+r.how, func(t *testing.T) {
			assert.True(t, r.want.is(results[i].patched), "expected: %s\ngot: %s\nlog:\n%s", r.want, results[i].patched, results[i].log)
		})
		for row := range strings.FieldsSeq(r.keps) {
			shown[row]++
		}
	}
	for kep, rows := range kepRows {
		for row := range rows {
			assert.NotZero(t, shown[fmt.Sprintf("%s/%d", kep, row+1)], "KEP-%s has no run for row %d of its table", kep, row+1)
		}
	}
	t.Log("\n" + printed(runs, results))
}

var (
	initialValue = regexp.MustCompile(`initial (\S+)`)
	// noise is of an error what says nothing, or differs from run to run.
	noise = regexp.MustCompile(`failed to validate kubelet configuration, error: |invalid configuration: |, path: &TypeMeta\{Kind:,APIVersion:,\}|/\S*/kubelet-[0-9]+/\S*/`)
)

// printed is all of it as a table in Markdown. The ways to make a setting that
// have the same outcome share a line.
func printed(runs []run, results []result) string {
	var out strings.Builder
	fmt.Fprintln(&out, "| KEP/row | its initial value | case | gates and maximum | set by | expected | patched | stock |")
	fmt.Fprintln(&out, "|---|---|---|---|---|---|---|---|")
	line := func(i int, how string) string {
		r := runs[i]
		table := r.table
		if m := initialValue.FindStringSubmatch(r.want.curve); table != "" && m != nil && m[1] != table {
			table += ", by the prose " + m[1]
		}
		set := r.gates
		if r.field != "" {
			set = append(slices.Clip(set), "maximum "+r.field)
		}
		patched := results[i].patched.String()
		if r.want.is(results[i].patched) {
			patched = "as expected"
		}
		cells := []string{r.keps, table, r.name, strings.Join(set, ", "), how, r.want.String(), patched, results[i].stock.String()}
		return "| " + noise.ReplaceAllString(strings.Join(cells, " | "), "") + " |"
	}
	var hows []string
	for i, r := range runs {
		hows = append(hows, r.how)
		if i+1 == len(runs) || line(i, "") != line(i+1, "") {
			fmt.Fprintln(&out, line(i, strings.Join(hows, "; ")))
			hows = nil
		}
	}
	return out.String()
}
