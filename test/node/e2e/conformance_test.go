// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// The flags of TestConformance, which hack/node-conformance.sh sets.
var (
	conformanceFlag = flag.String("conformance", "", "two `folders`, of stock and of ours and with a comma between, each with a kubelet and the e2e_node.test of its tree; or only ours, which runs only the specs of -own")
	ginkgoFlag      = flag.String("ginkgo", "", "the ginkgo `binary` of the tree, which runs tests side by side")
	agnhostFlag     = flag.String("agnhost", "", "the agnhost `binary` of the tree")
	imagesFlag      = flag.String("images", "", "the tags of upstream's images, a comma-separated `list` such as agnhost:2.66.1,pause:3.10.2")
	labelsFlag      = flag.String("labels", "NodeConformance && !Flaky && !Slow && !Serial && !Disruptive", "which specs to run: an `expression` of ginkgo's; by default those that upstream runs on every change")
	focusFlag       = flag.String("focus", "", "run only these of the specs: a regular `expression` of their names")
	skipFlag        = flag.String("skip", "", "leave these specs out: a regular `expression` of their names")
	ownFlag         = flag.String("own", "", "the specs of the series, which all must pass with our kubelet: a regular `expression` of their names")
	specsFlag       = flag.String("specs", "", "set by the harness: the `file` with the names of the specs to run")
	reportFlag      = flag.String("report", "", "set by the harness: the `file` for their results")
)

// conformanceImages returns those of upstream's images that can be built from its sources
// and from busybox. Other programs replace a web server, which only has to answer, and a
// libc, with which hostname must print the full name. otherSpecs need other images.
func conformanceImages(busybox string, tags []string) ([]harness.Image, error) {
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", busybox, err)
	}
	applets := strings.Fields(string(list))
	var all []harness.Image
	for _, tag := range tags {
		i := harness.Image{Program: "busybox", Reference: "registry.k8s.io/e2e-test-images/" + tag, Links: applets, System: true}
		switch name, _, _ := strings.Cut(tag, ":"); name {
		case "agnhost":
			i.Program, i.Busybox, i.Command = "agnhost", busybox, []string{"pause"}
		case "httpd", "nginx":
			i.Program, i.Busybox, i.Command = "agnhost", busybox, []string{"netexec", "--http-port=80"}
		case "busybox", "glibc-dns-testing":
			i.Shell, i.Command = true, []string{"sh"}
		case "nonroot":
			i.Shell, i.Command, i.User = true, []string{"sh"}, "1234"
		case "pause":
			i = harness.Image{Program: "pause", Reference: "registry.k8s.io/" + tag}
		default:
			return nil, fmt.Errorf("-images %s: must be agnhost, busybox, glibc-dns-testing, httpd, nginx, nonroot or pause", tag)
		}
		all = append(all, i)
	}
	return all, nil
}

// otherSpecs matches specs that cannot pass here: nonewprivs has a setuid program, and the others
// pull images. Each of these specs would wait for five to fifteen minutes. While a pull is tried,
// kubelets from v1.35 on also pull the image for other pods, whose specs would then fail.
const otherSpecs = "AllowPrivilegeEscalation|image is updated|able to pull"

// runConformance runs the specs of the series with our kubelet, and then upstream's specs.
// It runs those of upstream that did not pass with the stock kubelet too. Those that pass
// there get a second run with our kubelet, without the others.
func runConformance(ctx context.Context, h *harness.Harness, out io.Writer) error {
	images, err := conformanceImages(*busyboxFlag, strings.Split(*imagesFlag, ","))
	if err != nil {
		return err
	}
	programs := map[string]string{"agnhost": *agnhostFlag, "busybox": *busyboxFlag, "pause": h.Program("pause")}
	// Servers with https read these. Nothing verifies the certificate.
	crt, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return err
	}
	for _, i := range images {
		if i.Program == "agnhost" {
			i.Files = map[string][]byte{"localhost.crt": crt, "localhost.key": key}
		}
		if err := h.Pack(i, programs[i.Program]); err != nil {
			return err
		}
	}
	dirs := strings.Split(*conformanceFlag, ",")
	if len(dirs) > 2 || len(dirs) == 1 && *ownFlag == "" {
		return fmt.Errorf("-conformance %s: must be two folders, or one with -own", *conformanceFlag)
	}
	reports, err := os.MkdirTemp("", "node-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(reports)
	run := func(title, dir, own string, specs []string) (specStates, error) {
		names, report := filepath.Join(reports, "specs"), filepath.Join(reports, "report")
		if err := errors.Join(os.WriteFile(names, []byte(strings.Join(specs, "\n")), 0o644), os.RemoveAll(report)); err != nil {
			return nil, err
		}
		sp := harness.Spec{Kubelet: filepath.Join(dir, "kubelet"), Network: true, Machine: *machineFlag}
		if err := h.Run(ctx, title, sp, os.Stdout, append(os.Args[1:], "-inside", "-conformance", dir, "-own", own, "-specs", names, "-report", report)...); err != nil {
			return nil, err
		}
		return readStates(report)
	}
	// They take a few minutes, and the others half an hour.
	var failed error
	if *ownFlag != "" {
		_, failed = run("conformance, specs of the series", dirs[len(dirs)-1], *ownFlag, nil)
		if len(dirs) == 1 {
			return failed
		}
	}
	stockSpecs, err := specsOf(ctx, dirs[0], reports)
	if err != nil {
		return errors.Join(failed, err)
	}
	ours, err := run("conformance, ours", dirs[1], "", nil)
	if err != nil {
		return errors.Join(failed, err)
	}
	stock := specStates{}
	if rest := toCompare(stockSpecs, ours); len(rest) > 0 {
		harness.Progress("not all specs pass with ours; running %d with stock", len(rest))
		if stock, err = run("conformance, stock", dirs[0], "", rest); err != nil {
			return errors.Join(failed, err)
		}
	}
	names := worse(stock, ours)
	if len(names) > 0 {
		ourSpecs, err := specsOf(ctx, dirs[1], reports)
		if err != nil {
			return errors.Join(failed, err)
		}
		names = together(names, ourSpecs) // None if our tree lacks them.
	}
	if len(names) > 0 {
		harness.Progress("some of these pass with stock; running %d again with ours", len(names))
		h.Keep = true // If they fail again, the logs show why.
		again, err := run("conformance, ours again", dirs[1], "", names)
		if err != nil {
			return errors.Join(failed, err)
		}
		maps.Copy(ours, again)
	}
	return errors.Join(failed, compareStates(out, stock, ours))
}

// selected returns ginkgo's arguments for the specs that the flags select.
func selected() []string {
	args := []string{"--label-filter=" + *labelsFlag, "--skip=" + otherSpecs}
	if *focusFlag != "" {
		args = append(args, "--focus="+*focusFlag)
	}
	if *skipFlag != "" {
		args = append(args, "--skip="+*skipFlag)
	}
	return args
}

// specsOf returns the names of the specs of a tree that would run, each with that of its
// container. It runs none of them.
func specsOf(ctx context.Context, tree, reports string) (map[string]string, error) {
	tests := filepath.Join(tree, "e2e_node.test")
	args := append(selected(), "--dry-run", "--json-report=names", "--output-dir="+reports, tests)
	if out, err := exec.CommandContext(ctx, *ginkgoFlag, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s --dry-run %s: %w\n%s", *ginkgoFlag, tests, err, out)
	}
	results, err := readReport(filepath.Join(reports, "names"))
	specs := map[string]string{}
	for _, r := range results {
		specs[r.name] = r.container
	}
	return specs, err
}

// requirePassed prints the result of each spec, and returns an error unless all passed.
func requirePassed(w io.Writer, states specStates) error {
	fmt.Fprintf(w, "| spec of the series | result |\n| --- | --- |\n")
	bad := 0
	for _, name := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(w, "| %s | %s |\n", name, states[name])
		if states[name] != "passed" {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of the %d specs of the series do not pass", bad, len(states))
	}
	return nil
}

// specStates are the results of specs: passed, failed, skipped and so on.
type specStates map[string]string

// specResult is the result of a spec in a report of ginkgo.
type specResult struct{ name, container, state string }

// readReport reads a report. It leaves out specs that a label or a name excluded.
func readReport(file string) ([]specResult, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecialSuiteFailureReasons []string
		SpecReports                []struct {
			ContainerHierarchyTexts    []string
			LeafNodeText, LeafNodeType string
			State                      string
			NumAttempts                int
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	// Ginkgo leaves out empty texts when it compares names with -focus.
	join := func(texts ...string) string {
		return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), " ")
	}
	var results []specResult
	for _, suite := range suites {
		// Specs that did not run because the time was over look like excluded ones.
		if reasons := suite.SpecialSuiteFailureReasons; len(reasons) > 0 {
			return nil, fmt.Errorf("%s: the specs did not run to their end: %s", file, strings.Join(reasons, "; "))
		}
		for _, s := range suite.SpecReports {
			if s.LeafNodeType == "It" && (s.State != "skipped" || s.NumAttempts > 0) {
				container := join(s.ContainerHierarchyTexts...)
				results = append(results, specResult{join(container, s.LeafNodeText), container, s.State})
			}
		}
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("%s has no spec that ran", file)
	}
	return results, nil
}

func readStates(file string) (specStates, error) {
	results, err := readReport(file)
	states := specStates{}
	for _, r := range results {
		states[r.name] = r.state
	}
	return states, err
}

// together returns the specs that are in the same containers as some. A spec of an Ordered
// container may need what those before it left, and the report does not show the order.
func together(names []string, specs map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if slices.ContainsFunc(names, func(other string) bool { return specs[other] == specs[name] }) {
			all = append(all, name)
		}
	}
	return all
}

// controls is the number of specs that pass with ours and that run with stock too. If none
// of them passes there, something is wrong with stock's node.
const controls = 3

// toCompare returns the specs that must run with stock, if any did not pass with ours.
func toCompare(specs map[string]string, ours specStates) []string {
	var passed, rest []string
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if ours[name] == "passed" {
			passed = append(passed, name)
		} else {
			rest = append(rest, name)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	rest = append(together(rest, specs), passed[:min(controls, len(passed))]...)
	slices.Sort(rest)
	return slices.Compact(rest)
}

// worse returns the specs that pass with stock, and not with ours.
func worse(stock, ours specStates) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(stock)) {
		if stock[name] == "passed" && ours[name] != "passed" {
			names = append(names, name)
		}
	}
	return names
}

// compareStates prints the number of specs for each result of ours, and both results of the
// specs that did not pass with ours. It returns an error if one of these passes with stock,
// and if none passes with one of the kubelets.
func compareStates(w io.Writer, stock, ours specStates) error {
	counts := map[string]int{}
	for _, state := range ours {
		counts[state]++
	}
	fmt.Fprintf(w, "| specs | ours |\n| --- | --- |\n")
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "| %s | %d |\n", state, counts[state])
	}
	fmt.Fprintf(w, "\n| spec | stock | ours |\n| --- | --- | --- |\n")
	both := maps.Clone(ours)
	maps.Copy(both, stock)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		s, o := cmp.Or(stock[name], "not run"), cmp.Or(ours[name], "not run")
		if o != "passed" && (s != o || s == "failed") {
			fmt.Fprintf(w, "| %s | %s | %s |\n", name, s, o)
		}
	}
	if names := worse(stock, ours); len(names) > 0 {
		return fmt.Errorf("%d specs pass with the stock kubelet, and not with ours", len(names))
	}
	passed := func(state string) bool { return state == "passed" }
	if counts["passed"] == 0 || len(stock) > 0 && !slices.ContainsFunc(slices.Collect(maps.Values(stock)), passed) {
		return errors.New("no spec passes with one of the kubelets: something is wrong with its node")
	}
	return nil
}

// TestConformance runs upstream's specs with one kubelet. The specs start their own API
// server, and the kubelet in their folder. The harness compares the failures, so this
// test fails only if the specs cannot run, or if one of the series does not pass.
func TestConformance(t *testing.T) {
	if !*insideFlag || *conformanceFlag == "" {
		t.Skip("this needs root and upstream's tests, built: make node-conformance")
	}
	ran.Add(1)
	n, err := theNode()
	require.NoError(t, err)
	// On a machine it would not end with the node.
	t.Cleanup(func() { n.RuntimeProcess.Kill() })
	images, err := conformanceImages(*busyboxFlag, strings.Split(*imagesFlag, ","))
	require.NoError(t, err)
	for _, i := range images {
		require.NoError(t, n.Import(i))
	}
	specs, err := os.ReadFile(*specsFlag)
	require.NoError(t, err)
	which, processes := selected(), 12
	if n.Spec.Machine {
		processes = 4
	}
	var settings []string
	if *ownFlag != "" {
		// They are Serial, or measure time.
		which, processes = []string{"--focus=" + *ownFlag}, 1
		settings = ownSettings(t, n)
	}
	if len(specs) > 0 {
		which = nil
		for line := range strings.Lines(string(specs)) {
			// What ginkgo compares with begins with the name of the suite. Linux limits the length of an argument.
			which = append(which, "--focus="+regexp.QuoteMeta(strings.TrimSuffix(line, "\n"))+"$")
		}
	}
	report := filepath.Join(n.Spec.Logs, "conformance")
	require.NoError(t, os.Mkdir(report, 0o755))
	log := filepath.Join(n.Spec.Logs, "conformance.log")
	ctx, cancel := context.WithCancel(n.Context())
	defer cancel()
	go wait.UntilWithContext(ctx, func(context.Context) {
		if data, err := os.ReadFile(log); err == nil {
			harness.Progress("%d specs have run", bytes.Count(data, []byte("•"))) // ginkgo prints one for each
		}
	}, 2*time.Minute)
	deadline, limited := t.Deadline()
	require.True(t, limited, "-test.timeout is needed")
	timeout := (time.Until(deadline) - 10*time.Minute).Round(time.Second)
	args := append(which, fmt.Sprintf("--procs=%d", processes), "--json-report=report.json", "--output-dir="+report, "--no-color", "--timeout="+timeout.String(),
		filepath.Join(*conformanceFlag, "e2e_node.test"), "--")
	err = runUpstream(t, n, *ginkgoFlag, slices.Concat(args, settings, upstreamArgs(t, n, report)), log)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	data, err := os.ReadFile(filepath.Join(report, "report.json"))
	require.NoError(t, err, "the end of the log:\n%s", harness.Tail(log))
	require.NoError(t, os.WriteFile(*reportFlag, data, 0o644))
	states, err := readStates(*reportFlag)
	require.NoError(t, err)
	passed := 0
	for _, s := range states {
		if s == "passed" {
			passed++
		}
	}
	harness.Progress("%d of %d specs pass", passed, len(states))
	if *ownFlag != "" {
		require.NoError(t, requirePassed(os.Stdout, states))
	}
}

// ownSettings prepares the node for the specs of the series, and returns their arguments:
// the gates of RestartPod, for the kubelet and for the API server. The specs of the
// back-off set their gates themselves.
func ownSettings(t *testing.T, n *harness.Node) (args []string) {
	var gates []string
	for _, gate := range known(t, n, n.Spec.Kubelet, []string{gateRestartRules, harness.GateRestartPod}) {
		gates = append(gates, gate+"=true")
	}
	if len(gates) > 0 {
		list := strings.Join(gates, ",")
		args = []string{"--feature-gates=" + list, "--service-feature-gates=" + list}
	}
	programs := n.Path("programs")
	require.NoError(t, os.Mkdir(programs, 0o755))
	for name, script := range map[string]string{"sudo": "exec \"$@\"\n", "systemctl": systemctl} {
		script = "#!/bin/sh\nset -eu\nkubelet='" + n.Spec.Kubelet + "' state='" + programs + "'\n" + script
		require.NoError(t, os.WriteFile(filepath.Join(programs, name), []byte(script), 0o755))
	}
	t.Setenv("PATH", programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return args
}

// systemctl stands in for systemd's, with which upstream's functions stop and start the
// kubelet. It starts the kubelet as it was started before.
const systemctl = `
running() {
  for p in /proc/[0-9]*; do
    [ "$(readlink "$p/exe")" != "$kubelet" ] || echo "${p#/proc/}"
  done 2>/dev/null | sort -n | head -n 1
}
stop() {
  pid=$(running)
  [ -n "$pid" ] || return 0
  cat "/proc/$pid/cmdline" >"$state/arguments"
  readlink "/proc/$pid/cwd" >"$state/folder"
  readlink "/proc/$pid/fd/1" >"$state/log"
  kill "$pid"
  while [ -n "$(running)" ]; do sleep 0.1; done
}
case $1 in
  list-units) echo kubelet-specs.service ;;
  kill) stop ;;
  restart)
    stop
    cd "$(cat "$state/folder")"
    xargs -0 setsid <"$state/arguments" >>"$(cat "$state/log")" 2>&1 &
    ;;
esac
`

func TestRequirePassed(t *testing.T) {
	var out strings.Builder
	assert.NoError(t, requirePassed(&out, specStates{"a": "passed"}))
	assert.EqualError(t, requirePassed(&out, specStates{"a": "passed", "b": "skipped", "c": "failed"}), "2 of the 3 specs of the series do not pass")
	assert.Contains(t, out.String(), "| b | skipped |\n")
}

func TestCompareStates(t *testing.T) {
	specs := map[string]string{"a": "1", "b": "2", "c": "2", "d": "2", "e": "3", "f": "4", "g": "5", "h": "6", "i": "7"}
	ours := specStates{"a": "passed", "b": "passed", "c": "failed", "d": "failed", "e": "skipped", "g": "passed", "h": "passed", "i": "passed"}
	rest := toCompare(specs, ours)
	assert.Equal(t, []string{"a", "b", "c", "d", "e", "f", "g"}, rest, "what did not pass or did not run, the rest of container 2, and a, b, g")
	stock := specStates{"a": "failed", "b": "passed", "c": "failed", "d": "passed", "e": "skipped", "f": "passed", "g": "passed"}
	assert.Equal(t, []string{"d", "f"}, worse(stock, ours))
	assert.Equal(t, []string{"b", "c", "d", "f"}, together(worse(stock, ours), specs))
	var out strings.Builder
	assert.EqualError(t, compareStates(&out, stock, ours), "2 specs pass with the stock kubelet, and not with ours")
	for _, line := range []string{"| passed | 5 |", "| failed | 2 |", "| skipped | 1 |", "| c | failed | failed |", "| d | passed | failed |", "| f | passed | not run |"} {
		assert.Contains(t, out.String(), line+"\n")
	}
	for _, name := range []string{"a", "b", "e"} {
		assert.NotContains(t, out.String(), "| "+name+" |")
	}
	ours["d"], ours["f"] = "passed", "passed"
	assert.NoError(t, compareStates(io.Discard, stock, ours), "a spec that only ours passes is not an error")
	ours["e"], ours["c"] = "passed", "passed"
	assert.Empty(t, toCompare(specs, ours))
	assert.NoError(t, compareStates(io.Discard, specStates{}, ours))

	failed := specStates{"a": "failed"}
	assert.ErrorContains(t, compareStates(io.Discard, failed, failed), "no spec passes with one of the kubelets")
	assert.ErrorContains(t, compareStates(io.Discard, failed, ours), "no spec passes with one of the kubelets")
	assert.EqualError(t, compareStates(io.Discard, specStates{"a": "passed"}, failed), "1 specs pass with the stock kubelet, and not with ours")
}

func TestReadStates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report")
	require.NoError(t, os.WriteFile(file, []byte(`[{"SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-node] Pods", "", "when"], "LeafNodeType": "It", "LeafNodeText": "run", "State": "passed", "NumAttempts": 1},
		{"ContainerHierarchyTexts": ["Pods"], "LeafNodeType": "It", "LeafNodeText": "left out", "State": "skipped"},
		{"ContainerHierarchyTexts": ["Pods"], "LeafNodeType": "It", "LeafNodeText": "skip themselves", "State": "skipped", "NumAttempts": 1}]}]`), 0o644))
	states, err := readStates(file)
	require.NoError(t, err)
	assert.Equal(t, specStates{"[sig-node] Pods when run": "passed", "Pods skip themselves": "skipped"}, states)
	require.NoError(t, os.WriteFile(file, []byte(`[]`), 0o644))
	_, err = readStates(file)
	assert.ErrorContains(t, err, "no spec that ran")
	require.NoError(t, os.WriteFile(file, []byte(`[{"SpecialSuiteFailureReasons": ["Suite Timeout Elapsed"], "SpecReports": [{"LeafNodeType": "It", "State": "passed", "NumAttempts": 1}]}]`), 0o644))
	_, err = readStates(file)
	assert.ErrorContains(t, err, "did not run to their end: Suite Timeout Elapsed")
}
