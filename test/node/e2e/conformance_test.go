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

// runConformance runs upstream's specs with both kubelets. It runs specs with different
// results once more, without the others. Then it runs the specs of the series with ours.
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
		own, err := run("conformance, specs of the series", dirs[len(dirs)-1], *ownFlag, nil)
		if err != nil {
			return err
		}
		failed = requirePassed(out, own)
		if len(dirs) == 1 {
			return failed
		}
	}
	var all [2]specStates
	for i, title := range []string{"conformance, stock", "conformance, ours"} {
		if all[i], err = run(title, dirs[i], "", nil); err != nil {
			return errors.Join(failed, err)
		}
	}
	if specs := differing(all[0], all[1]); len(specs) > 0 {
		harness.Progress("%d specs have different results; running only these again", len(specs))
		for i, title := range []string{"conformance, stock again", "conformance, ours again"} {
			again, err := run(title, dirs[i], "", specs)
			if err != nil {
				return errors.Join(failed, err)
			}
			maps.Copy(all[i], again)
		}
	}
	return errors.Join(failed, compareStates(out, all[0], all[1]))
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

// readStates reads a report of ginkgo. It leaves out specs that a label or a name excluded.
func readStates(file string) (specStates, error) {
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
	states := specStates{}
	for _, suite := range suites {
		// Specs that did not run because the time was over look like excluded ones.
		if reasons := suite.SpecialSuiteFailureReasons; len(reasons) > 0 {
			return nil, fmt.Errorf("%s: the specs did not run to their end: %s", file, strings.Join(reasons, "; "))
		}
		for _, s := range suite.SpecReports {
			if s.LeafNodeType == "It" && (s.State != "skipped" || s.NumAttempts > 0) {
				states[strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")] = s.State
			}
		}
	}
	if len(states) == 0 {
		return nil, fmt.Errorf("%s has no spec that ran", file)
	}
	return states, nil
}

// differing returns the specs with different results. Those that only our tree has would not
// run a second time with stock.
func differing(stock, ours specStates) (specs []string) {
	for _, name := range slices.Sorted(maps.Keys(stock)) {
		if stock[name] != ours[name] {
			specs = append(specs, name)
		}
	}
	return specs
}

func union(a, b specStates) []string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}

// compareStates prints the number of specs for each result, and the specs that failed or
// differ. It returns an error if a spec passes with stock and not with ours.
func compareStates(w io.Writer, stock, ours specStates) error {
	counts := map[string]*[2]int{}
	count := func(states specStates, i int) {
		for _, state := range states {
			if counts[state] == nil {
				counts[state] = &[2]int{}
			}
			counts[state][i]++
		}
	}
	count(stock, 0)
	count(ours, 1)
	fmt.Fprintf(w, "| specs | stock | ours |\n| --- | --- | --- |\n")
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "| %s | %d | %d |\n", state, counts[state][0], counts[state][1])
	}
	worse := 0
	for _, name := range union(stock, ours) {
		s, o := cmp.Or(stock[name], "not run"), cmp.Or(ours[name], "not run")
		if s == o && s != "failed" {
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, s, o)
		if s == "passed" && o != s {
			worse++
		}
	}
	if counts["passed"] == nil || counts["passed"][0] == 0 {
		return errors.New("no spec passes with the stock kubelet: something is wrong with the node")
	}
	if worse > 0 {
		return fmt.Errorf("%d specs pass with the stock kubelet, and not with ours", worse)
	}
	return nil
}

// TestConformance runs upstream's specs with one kubelet. The specs start their own API
// server, and the kubelet in their folder. The harness compares the failures, so this
// test fails only if the specs cannot run.
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
	which, processes := []string{"--label-filter=" + *labelsFlag, "--skip=" + otherSpecs}, 12
	if *focusFlag != "" {
		which = append(which, "--focus="+*focusFlag)
	}
	if *skipFlag != "" {
		which = append(which, "--skip="+*skipFlag)
	}
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
		var exact []string
		for line := range strings.Lines(string(specs)) {
			exact = append(exact, regexp.QuoteMeta(strings.TrimSuffix(line, "\n")))
		}
		// What ginkgo compares with begins with the name of the suite.
		which, processes = []string{"--focus=(" + strings.Join(exact, "|") + ")$"}, 1
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
}

// ownSettings prepares the node for the specs of the series, and returns their arguments:
// the gates of RestartPod, for the kubelet and for the API server. The specs of the
// back-off set their gates themselves.
func ownSettings(t *testing.T, n *harness.Node) (args []string) {
	var gates []string
	for _, gate := range known(t, n, n.Spec.Kubelet, []string{"ContainerRestartRules", harness.GateRestartPod}) {
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
	stock := specStates{"a": "passed", "b": "failed", "c": "passed", "d": "skipped", "e": "passed"}
	ours := specStates{"a": "passed", "b": "failed", "c": "failed", "d": "skipped", "of the series": "passed"}
	assert.Equal(t, []string{"c", "e"}, differing(stock, ours))
	var out strings.Builder
	assert.EqualError(t, compareStates(&out, stock, ours), "2 specs pass with the stock kubelet, and not with ours")
	for _, line := range []string{"| passed | 3 | 2 |", "| failed | 1 | 2 |", "| b | failed | failed |", "| c | passed | failed |", "| e | passed | not run |", "| of the series | not run | passed |"} {
		assert.Contains(t, out.String(), line+"\n")
	}
	assert.NotContains(t, out.String(), "| a |")
	delete(ours, "of the series")
	assert.NoError(t, compareStates(io.Discard, ours, stock), "a spec that only ours passes is not an error")
	broken := specStates{"a": "failed"}
	assert.ErrorContains(t, compareStates(io.Discard, broken, broken), "no spec passes with the stock kubelet")
}

func TestReadStates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report")
	require.NoError(t, os.WriteFile(file, []byte(`[{"SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-node] Pods", "when"], "LeafNodeType": "It", "LeafNodeText": "run", "State": "passed", "NumAttempts": 1},
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
