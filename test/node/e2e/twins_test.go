// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// twin is a pod that runs with crashloop run and with the kubelet. Both must behave in the
// same way.
type twin struct {
	name string
	spec v1.PodSpec
	// script has the actions of the test and its waits before it compares the traces:
	// "CONTAINER START EVENT" and "CONTAINER NUMBER exits" wait for the journal and for exits,
	// "put FILE" creates a file, "sleep DURATION" sleeps.
	script []string
	// order has events of different containers in their order, for assertOrder.
	order []string
	// phase is the final phase of a pod that ends by itself.
	phase v1.PodPhase
}

// twins trigger restarts of the pod a second after its start, because the API has times in
// seconds. A container that gets SIGTERM has started before.
var twins = []twin{
	{name: "crashes", spec: alwaysSpec(nil, container("main", "exit=3", "exit=3", "exit=3", ""), container("other", "")), script: []string{"main 4 start"}},
	{name: "succeeds-and-is-restarted", spec: alwaysSpec(nil, container("main", "exit=0", "exit=0", "")), script: []string{"main 3 start"}},
	{name: "on-failure", spec: onFailure(nil, container("main", "exit=1", "sleep=1s exit=0")), phase: v1.PodSucceeded},
	{name: "never", spec: podSpec(nil, container("main", "exit=7"), container("other", "sleep=2s exit=0")), phase: v1.PodFailed},
	{name: "init-containers", spec: alwaysSpec([]v1.Container{container("one", "sleep=1s exit=0"), container("two", "exit=0")}, container("main", "")), script: []string{"main 1 start"}, order: []string{"one 1 exit:0", "two 1 start", "two 1 exit:0", "main 1 start"}},
	{name: "init-retries", spec: alwaysSpec([]v1.Container{container("one", "exit=1", "exit=1", "exit=0")}, container("main", "")), script: []string{"main 1 start"}, order: []string{"one 3 exit:0", "main 1 start"}},
	{name: "init-fails", spec: podSpec([]v1.Container{container("one", "exit=1")}, container("main", "")), phase: v1.PodFailed},
	{name: "sidecar-crashes", spec: alwaysSpec([]v1.Container{sidecar("proxy", "sleep=4s exit=2", ""), container("one", "exit=0")}, container("main", "")), script: []string{"proxy 2 start"}, order: []string{"proxy 1 start", "one 1 start", "one 1 exit:0", "main 1 start"}},
	{
		name: "sidecar-outlives-the-pod", spec: podSpec([]v1.Container{sidecar("proxy", "linger=2s")}, container("main", "after=proxy exit=0")),
		phase: v1.PodSucceeded, order: []string{"main 1 exit:0", "proxy 1 term"},
	},
	{
		name: "sidecars-stop-in-order", spec: podSpec([]v1.Container{sidecar("first", "linger=1s"), sidecar("second", "linger=1s")}, container("main", "after=first after=second exit=5")),
		phase: v1.PodFailed, order: []string{"first 1 start", "second 1 start", "main 1 start", "main 1 exit:5", "second 1 term", "second 1 exit:143", "first 1 term"},
	},
	{
		name: "restarts-the-pod", spec: podSpec([]v1.Container{container("one", "exit=0"), sidecar("proxy", "")}, triggeringBy(container("main", "wait=go exit=42", ""), harness.ActionRestartPod), preStop(container("other", ""), time.Second)),
		script: []string{"proxy 1 start", "main 1 start", "other 1 start", "sleep 1s", "put go", "main 2 start", "other 2 start"},
		order: []string{
			"one 1 exit:0", "proxy 1 start", "main 1 start", "main 1 exit:42", "other 1 pre-stop", "other 1 pre-stop-end", "other 1 term", "other 1 exit:143",
			"proxy 1 term", "proxy 1 exit:143", "one 2 start", "one 2 exit:0", "proxy 2 start", "main 2 start",
		},
	},
	{
		name: "restarts-the-pod-thrice", spec: podSpec(nil, triggeringBy(container("main", "wait=go exit=42", "wait=go exit=42", "wait=go exit=42", ""), harness.ActionRestartPod), container("other", "")),
		script: []string{
			"main 1 start", "other 1 start", "sleep 1s", "put go", "main 2 start", "other 2 start", "sleep 1s", "put go",
			"main 3 start", "other 3 start", "sleep 1s", "put go", "main 4 start", "other 4 start",
		},
		order: []string{
			"main 1 exit:42", "other 1 term", "other 1 exit:143", "main 2 start", "main 2 exit:42", "other 2 term", "other 2 exit:143",
			"main 3 start", "main 3 exit:42", "other 3 term", "other 3 exit:143", "main 4 start",
		},
	},
	{
		name: "exits-in-post-start-hook",
		spec: alwaysSpec(nil, container("other", ""), probed(triggeringBy(container("main", "wait=go exit=42", ""), harness.ActionRestartPod), func(c *v1.Container) {
			c.Lifecycle = &v1.Lifecycle{PostStart: noting("post-start", 10*time.Second)}
		})),
		script: []string{"main 1 post-start", "sleep 1s", "put go", "main 2 post-start-end"}, order: []string{"main 1 exit:42", "other 1 term", "other 2 start", "main 2 start"},
	},
	{
		name: "restarts-all-containers", spec: podSpec([]v1.Container{sidecar("proxy", "")}, triggeringBy(container("main", "wait=go exit=42", ""), v1.ContainerRestartRuleActionRestartAllContainers), container("other", "linger=5s")),
		script: []string{"main 1 start", "other 1 start", "sleep 1s", "put go", "main 2 start", "other 2 start"}, order: []string{"main 1 exit:42", "proxy 2 start", "main 2 start"},
	},
	{
		name: "restart-rule", spec: podSpec(nil, ruled(container("main", "exit=9", "sleep=1s exit=0"), v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleOnExitCodesOpIn, 9)),
		phase: v1.PodSucceeded,
	},
	{
		name: "ignores-sigterm", spec: withGrace(2, podSpec(nil, triggeringBy(container("main", "wait=go exit=42", ""), harness.ActionRestartPod), container("other", "term=ignore", ""))),
		script: []string{"main 1 start", "other 1 start", "sleep 1s", "put go", "main 2 start", "other 2 start"}, order: []string{"main 1 exit:42", "other 1 term", "main 2 start"},
	},
	{name: "active-deadline", spec: withDeadline(4, alwaysSpec(nil, container("main", ""))), phase: v1.PodFailed},
	{
		name: "liveness-probe", spec: alwaysSpec(nil, probed(container("main", "", ""), func(c *v1.Container) { c.LivenessProbe = exists("alive", 1, 2) })),
		script: []string{"main 1 exit:143", "put alive", "main 2 start"},
	},
	{
		name: "startup-probe", spec: alwaysSpec([]v1.Container{probed(sidecar("proxy", ""), func(c *v1.Container) { c.StartupProbe = exists("up", 1, 60) })}, container("main", "")),
		script: []string{"proxy 1 start", "sleep 8s", "put up", "main 1 start", "sleep 3s"}, order: []string{"proxy 1 start", "main 1 start"},
	},
	{
		name: "cannot-execute", spec: alwaysSpec(nil, executing(container("main"), "/nothing"), container("other", "")),
		// The fifth exit: crashloop run may end before it reports the wait after the last one.
		script: []string{"other 1 start", "main 5 exits"},
	},
	{
		name: "two-crash", spec: alwaysSpec(nil, container("main", "exit=1", "exit=1", ""), container("other", "sleep=3s exit=2", "sleep=3s exit=2", "")),
		script: []string{"main 3 start", "other 3 start"},
	},
}

func onFailure(inits []v1.Container, containers ...v1.Container) v1.PodSpec {
	spec := podSpec(inits, containers...)
	spec.RestartPolicy = v1.RestartPolicyOnFailure
	return spec
}

func withGrace(seconds int64, spec v1.PodSpec) v1.PodSpec {
	spec.TerminationGracePeriodSeconds = &seconds
	return spec
}

func withDeadline(seconds int64, spec v1.PodSpec) v1.PodSpec {
	spec.ActiveDeadlineSeconds = &seconds
	return spec
}

func probed(c v1.Container, add func(*v1.Container)) v1.Container {
	add(&c)
	return c
}

func executing(c v1.Container, command ...string) v1.Container {
	c.Command = command
	return c
}

// exists returns a probe for a file of the pod.
func exists(file string, period, threshold int32) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/actor", "exists", file}}},
		PeriodSeconds: period, FailureThreshold: threshold, TimeoutSeconds: 10,
	}
}

// twinTrace is the trace of a pod, without parts that differ from run to run.
type twinTrace struct {
	journal []harness.JournalEvent
	// events has each event of the pod and its containers once, sorted.
	events []string
	// conditions are the states of the condition of in-place restarts.
	conditions []string
	// exits has the number of exits of each container, and its last exit code.
	exits map[string]string
	phase v1.PodPhase
}

// agentTraces are the traces of TestCrashloopRun, which runs before TestNode.
var agentTraces = struct {
	sync.Mutex
	of map[string]twinTrace
}{of: map[string]twinTrace{}}

// crashloopTwins runs the twins with crashloop run.
func crashloopTwins(t *testing.T, e *e2e) {
	eachTwin(t, e, func(t *testing.T, tw twin) {
		p := e.newCrashloopPod(t, tw.spec)
		require.NoError(t, os.WriteFile(p.config(), []byte(fmt.Sprintf(twinsConfig, usual.Maximum, usual.Reduced)), 0o644))
		p.start()
		p.act(tw, p.signal, func(name string, n int) {
			p.tellings("exits of "+name, n, func(e runEvent) bool { return e.Container == name && e.ExitCode != nil })
		})
		trace := twinTrace{phase: cmp.Or(tw.phase, v1.PodRunning)}
		if tw.phase == "" {
			trace.conditions = p.settled()
		} else {
			p.ends(map[v1.PodPhase]int{v1.PodSucceeded: 0, v1.PodFailed: 1}[tw.phase])
		}
		trace.journal = p.journal()
		p.addToldEvents(&trace)
		p.assertOrder(tw.order...)
		if tw.phase == "" {
			p.interrupt()
		}
		agentTraces.Lock()
		defer agentTraces.Unlock()
		agentTraces.of[tw.name] = trace
	})
}

// eachTwin runs all twins in parallel, and returns when they have ended.
func eachTwin(t *testing.T, e *e2e, run func(*testing.T, twin)) {
	t.Run("pods", func(t *testing.T) {
		for _, tw := range twins {
			t.Run(tw.name, func(t *testing.T) {
				if e.crio() && tw.name == "cannot-execute" {
					skip(t, "CRI-O creates nothing without a program, so there are no exits to compare")
				}
				t.Parallel()
				run(t, tw)
			})
		}
	})
}

// twinsConfig has the curve and the gates of the kubelet.
const twinsConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
crashLoopBackOff: {maxContainerRestartPeriod: %s}
featureGates: {` + harness.GateReduced + `: %v, ` + harness.GateMaximum + `: true, ContainerRestartRules: true, ` + harness.GateRestartPod + `: true, ` + gateRestartAllContainers + `: true}
`

// act executes the script.
func (p *pod) act(tw twin, put func(string), exits func(string, int)) {
	p.t.Helper()
	for _, line := range tw.script {
		switch f := strings.Fields(line); f[0] {
		case "put":
			put(f[1])
		case "sleep":
			d, err := time.ParseDuration(f[1])
			require.NoError(p.t, err)
			time.Sleep(d)
		default:
			n, err := strconv.Atoi(f[1])
			require.NoError(p.t, err)
			if f[2] == "exits" {
				exits(f[0], n)
			} else {
				p.event(f[0], n, f[2])
			}
		}
	}
}

// settled waits until the agent has reported what is in the journal, and has saved that no
// restart of the pod is in progress. It returns the conditions that the agent has saved.
func (p *crashloopPod) settled() (saved []string) {
	p.t.Helper()
	for _, c := range slices.Concat(p.wanted.InitContainers, p.wanted.Containers) {
		if n := p.starts(c.Name); n > 0 {
			p.started(c.Name, n)
		}
	}
	require.NoError(p.t, harness.Await(p.ctx, "the end of restarts", patience, func(context.Context) error {
		saved = p.savedConditions()
		for _, c := range saved {
			if strings.Contains(c, "="+string(v1.ConditionTrue)+" ") {
				return errors.New(c)
			}
		}
		return nil
	}))
	return saved
}

// savedConditions returns the conditions that the agent has saved.
func (p *crashloopPod) savedConditions() []string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(p.volume)), "status.json"))
	require.NoError(p.t, err)
	var status v1.PodStatus
	require.NoError(p.t, json.Unmarshal(text, &status))
	return restartConditions(status.Conditions)
}

func restartConditions(all []v1.PodCondition) (found []string) {
	for _, c := range all {
		if c.Type == conditionOf(harness.ActionRestartPod) || c.Type == v1.AllContainersRestarting {
			found = append(found, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	slices.Sort(found)
	return found
}

// addToldEvents adds the events that the agent has printed.
func (p *crashloopPod) addToldEvents(trace *twinTrace) {
	p.t.Helper()
	text, err := os.ReadFile(p.output)
	require.NoError(p.t, err)
	trace.exits = map[string]string{}
	exits := map[string]int{}
	for line := range bytes.Lines(text) {
		var e runEvent
		require.NoError(p.t, json.Unmarshal(line, &e))
		switch {
		case e.ExitCode != nil:
			exits[e.Container]++
			trace.exits[e.Container] = fmt.Sprintf("%d times, last %d %s", exits[e.Container], *e.ExitCode, e.Reason)
		case slices.Contains(ownReasons, e.Reason):
		default:
			trace.events = append(trace.events, p.eventText(e.Container, e.Type, e.Reason, e.Message))
		}
	}
	trace.events = distinct(trace.events)
}

// shortWait matches an event of a wait that may be over before a busy machine records it.
var shortWait = regexp.MustCompile(`: waiting [12]s, `)

// distinct returns each event once, without those of short waits.
func distinct(events []string) []string {
	events = slices.DeleteFunc(events, func(e string) bool { return shortWait.MatchString(e) })
	slices.Sort(events)
	return slices.Compact(events)
}

// ownReasons are the reasons of lines that only crashloop run prints. kubeletReasons are the
// reasons of events that only the kubelet records.
var (
	ownReasons     = []string{"CrashLoopBackOff", "PodSucceeded", "PodFailed", "Summary"}
	kubeletReasons = []string{"Pulled", "Scheduled"}
)

var eventTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// eventText formats an event without the names and times of this run.
func (p *pod) eventText(container, eventType, reason, message string) string {
	message = strings.NewReplacer(p.name, "POD", string(p.uid), "UID").Replace(message)
	return fmt.Sprintf("%s %s %s: %s", cmp.Or(container, "pod"), eventType, reason, eventTime.ReplaceAllString(message, "TIME"))
}

// kubeletTwins runs the twins with the kubelet, and compares the traces.
func kubeletTwins(t *testing.T, e *e2e) {
	if e.before(t, 37) {
		skip(t, "the agent does what the kubelet of v1.37 does")
	}
	if len(agentTraces.of) == 0 {
		skip(t, "there is nothing to compare with: crashloop run has run none of these pods (SCENARIO=CrashloopRun/Twins is the other half)")
	}
	eachTwin(t, e, func(t *testing.T, tw twin) {
		want, ok := agentTraces.of[tw.name]
		require.True(t, ok, "crashloop run has not completed this twin")
		p := e.create(t, tw.spec, "kubelet")
		p.act(tw, p.put, func(name string, n int) {
			p.latest("the exits of "+name, func(now *v1.Pod) error {
				if got := exitsOf(statusOf(now, name)); got < n {
					return fmt.Errorf("there are %d", got)
				}
				return nil
			})
		})
		phase := cmp.Or(tw.phase, v1.PodRunning)
		last := p.latest("the phase", func(now *v1.Pod) error {
			if now.Status.Phase != phase {
				return fmt.Errorf("it is %s, not %s", now.Status.Phase, phase)
			}
			return nil
		})
		// Events and the status follow later.
		var got twinTrace
		_ = harness.Await(p.ctx, "the same trace", patience, func(context.Context) error {
			if history := p.pods.of(p.name); tw.phase == "" {
				last = history[len(history)-1].pod
			}
			got = twinTrace{journal: p.journal(), phase: phase, exits: exitsIn(last), events: p.events()}
			if tw.phase == "" {
				got.conditions = restartConditions(last.Status.Conditions)
			}
			if !sameTwins(new(assert.CollectT), want, got, e.crio()) {
				return errors.New("it differs")
			}
			return nil
		})
		sameTwins(t, want, got, e.crio())
		p.assertOrder(tw.order...)
	})
}

// exitsIn returns the number of exits of each container and its last exit code.
func exitsIn(now *v1.Pod) map[string]string {
	exits := map[string]string{}
	for _, s := range statuses(now) {
		if n := exitsOf(s); n > 0 {
			last := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
			exits[s.Name] = fmt.Sprintf("%d times, last %d %s", n, last.ExitCode, last.Reason)
		}
	}
	return exits
}

// exitsOf returns the number of exits of a container. A container that waits for a restart
// has one exit more than restarts.
func exitsOf(s v1.ContainerStatus) int {
	if s.State.Terminated == nil && s.LastTerminationState.Terminated == nil {
		return 0
	}
	if s.State.Running != nil {
		return int(s.RestartCount)
	}
	return int(s.RestartCount) + 1
}

// events returns the events of the pod in the API.
func (p *pod) events() (all []string) {
	p.t.Helper()
	list, err := p.kube.CoreV1().Events(metav1.NamespaceDefault).List(p.ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.uid)})
	require.NoError(p.t, err)
	for _, e := range list.Items {
		if slices.Contains(kubeletReasons, e.Reason) {
			continue
		}
		_, container, _ := strings.Cut(e.InvolvedObject.FieldPath, "{")
		all = append(all, p.eventText(strings.TrimSuffix(container, "}"), e.Type, e.Reason, e.Message))
	}
	return distinct(all)
}

// sameTwins compares the traces of the agent and of the kubelet.
func sameTwins(t assert.TestingT, agent, kubelet twinTrace, crio bool) bool {
	same := assert.Equal(t, byContainer(agent.journal, crio), byContainer(kubelet.journal, crio), "journal of each container: crashloop run, kubelet")
	same = assert.Equal(t, agent.exits, kubelet.exits, "exits: crashloop run, kubelet") && same
	same = assert.Equal(t, agent.conditions, kubelet.conditions, "conditions: crashloop run, kubelet") && same
	return assert.Equal(t, agent.events, kubelet.events, "events: crashloop run, kubelet") && same
}

// byContainer returns the events of each container in order.
func byContainer(journal []harness.JournalEvent, crio bool) map[string][]string {
	all := map[string][]string{}
	for _, e := range journal {
		events := all[e.Container]
		last := len(events) - 1
		switch {
		case e.Event == "alive":
			continue // The number of these depends on the speed of the machine.
		case crio && e.Event == "start" && last >= 0 && strings.HasSuffix(events[last], " term"):
			// CRI-O sends SIGTERM also without a grace period, and SIGKILL so soon after it that
			// only some containers note the first. With a grace period, twin.order has the event.
			events = events[:last]
		}
		all[e.Container] = append(events, fmt.Sprintf("%d %s", e.Start, e.Event))
	}
	return all
}

func TestCompareTwins(t *testing.T) {
	names := map[string]bool{}
	for _, tw := range twins {
		assert.False(t, names[tw.name], tw.name)
		names[tw.name] = true
		assert.True(t, tw.phase != "" || len(tw.script) > 0, tw.name)
	}
	assert.GreaterOrEqual(t, len(twins), 20)
	journal := []harness.JournalEvent{{At: 1, Container: "a", Start: 1, Event: "start"}, {At: 2, Container: "b", Start: 1, Event: "start"}}
	assert.True(t, sameTwins(new(assert.CollectT), twinTrace{journal: journal}, twinTrace{journal: journal}, false))
	for name, trace := range map[string]twinTrace{
		"exits":      {journal: journal, exits: map[string]string{"a": "1 times, last 1 Error"}},
		"conditions": {journal: journal, conditions: []string{"c"}}, "events": {journal: journal, events: []string{"e"}},
		"journal": {journal: journal[:1]},
	} {
		assert.False(t, sameTwins(new(assert.CollectT), twinTrace{journal: journal}, trace, false), name)
	}
	of := func(text string) (trace twinTrace) {
		var err error
		trace.journal, err = harness.ParseJournal([]byte(text))
		require.NoError(t, err)
		return trace
	}
	same := func(crio bool, agent, kubelet twinTrace) bool {
		return sameTwins(new(assert.CollectT), agent, kubelet, crio)
	}
	killed, noted := of("1 a 1 start\n9 a 2 start\n"), of("1 a 1 start\n8 a 1 term\n9 a 2 start\n")
	assert.True(t, same(true, killed, noted))
	assert.False(t, same(false, killed, noted))
	assert.False(t, same(true, of("1 a 1 start\n3 a 1 exit:143\n9 a 2 start\n"), of("1 a 1 start\n2 a 1 term\n3 a 1 exit:143\n9 a 2 start\n")))
}
