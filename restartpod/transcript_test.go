// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	v1 "k8s.io/api/core/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// TestTranscripts runs the scripts in testdata/transcripts. Each script is the
// life of a pod, and every step must pass the checks of the search. A
// counter-example that the search prints is valid input for the command script.
//
//	pod [policy=P] [grace=D] [gates=(G, ...)] [initial=D] [max=D] [reset=D] [probed]
//		begins a pod without instances. Its input has one container per line, in
//		the order of the spec:
//			init|sidecar|container|ephemeral NAME [policy=P] [rules=(ACTION In|NotIn CODE ..., ...)]
//		The defaults are the policy Always, a grace period of 30s, the curve of a
//		default node and all gates on. With probed, containers wait for the command
//		started.
//	step [actions=N] [lost-write]
//		steps the machine, prints the plan and carries it out, or only its first N
//		actions: writing the condition, then the kills, then the starts. With
//		lost-write, the API does not accept the condition.
//	run [for=D]
//		steps while that changes anything, with only expected events in between:
//		containers that are being stopped exit with 143, startup probes succeed,
//		init containers succeed. Time stands still, or advances to each step that a
//		plan asks for, by D in total. It prints the changes of the phase.
//	exit NAME code=N
//		ends a container.
//	started NAME
//		makes the startup probe succeed.
//	stop NAME
//		makes the agent stop a container for its own reasons, for example after a
//		failed liveness probe. The container ends with exit.
//	prestop NAME
//		ends the preStop hook.
//	tick D
//		advances the time and prints the containers whose time to stop is over.
//	delete
//	lose-sandbox
//	crash [gates=(G, ...)]
//		restarts the agent, with other gates if any are given.
//	reboot [forget]
//		reboots the node. With forget, the runtime forgets its containers.
//	script
//		runs the commands in its input, one per line.
//
// Times are relative to the beginning of the pod. In the output of a step, old means
// that a status belongs to the previous run. The containers' own back-offs are not
// shown.
//
// go test ./restartpod -run TestTranscripts -rewrite records the current output.
// Commit a change of a transcript only if you know why it is right.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		var tr transcript
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return tr.play(t, d)
		})
	})
}

// transcript is a script in progress.
type transcript struct {
	state
	spec *podSpec
	// stops is when a container that is being stopped gets SIGKILL.
	stops [maxContainers]time.Time
}

func (tr *transcript) play(t *testing.T, d *datadriven.TestData) string {
	if tr.pod == nil && d.Cmd != "pod" {
		d.Fatalf(t, "a script begins with the command pod")
	}
	switch d.Cmd {
	case "pod":
		tr.begin(t, d)
	case "step":
		actions := -1
		maybeScanArgs(t, d, "actions", &actions)
		before := tr.String()
		_, shown := tr.step(t, d, actions, d.HasArg("lost-write"))
		if tr.String() == before {
			return shown
		}
		return shown + tr.String()
	case "run":
		return tr.run(t, d)
	case "exit":
		code := 0
		d.ScanArgs(t, "code", &code)
		tr.exit(tr.alive(t, d), int32(code))
	case "started":
		tr.containers[tr.alive(t, d)].started = true
	case "stop":
		tr.containers[tr.alive(t, d)].byAgent = true
	case "prestop":
		i := tr.alive(t, d)
		if !tr.containers[i].killing {
			d.Fatalf(t, "%s is not being stopped", tr.template[i].Name)
		}
		return fmt.Sprintf("%s gets SIGTERM, and SIGKILL after %v", tr.template[i].Name, tr.stops[i].Sub(tr.now))
	case "tick":
		return tr.tick(duration(t, d, d.CmdArgs[0].Key))
	case "delete":
		tr.deleted = true
	case "lose-sandbox":
		tr.loseSandbox()
	case "reboot":
		tr.loseSandbox()
		if d.HasArg("forget") {
			tr.forget()
		}
		return tr.restartAgent(tr.gates)
	case "crash":
		gates := tr.gates
		if d.HasArg("gates") {
			gates = scanGates(t, d)
		}
		return tr.restartAgent(gates)
	case "script":
		return tr.script(t, d)
	default:
		d.Fatalf(t, "unknown command")
	}
	return tr.String()
}

// script is the command script.
func (tr *transcript) script(t *testing.T, d *datadriven.TestData) string {
	var b strings.Builder
	for _, line := range strings.Split(d.Input, "\n") {
		cmd, args, err := datadriven.ParseLine(line)
		if err != nil || cmd == "" {
			d.Fatalf(t, "not a command: %q", line)
		}
		output := tr.play(t, &datadriven.TestData{Pos: d.Pos, Cmd: cmd, CmdArgs: args})
		fmt.Fprintf(&b, "> %s\n%s\n", line, strings.TrimSuffix(output, "\n"))
	}
	return b.String()
}

// begin is the command pod.
func (tr *transcript) begin(t *testing.T, d *datadriven.TestData) {
	policy, grace := string(v1.RestartPolicyAlways), "30s"
	initial, limit, reset := "10s", "300s", backoff.ContainerResetPeriod.String()
	maybeScanArgs(t, d, "policy", &policy)
	maybeScanArgs(t, d, "grace", &grace)
	maybeScanArgs(t, d, "initial", &initial)
	maybeScanArgs(t, d, "max", &limit)
	maybeScanArgs(t, d, "reset", &reset)
	seconds := int64(duration(t, d, grace) / time.Second)
	spec := &podSpec{rules: map[string][]Rule{}}
	spec.RestartPolicy, spec.TerminationGracePeriodSeconds = v1.RestartPolicy(policy), &seconds
	for _, line := range strings.Split(d.Input, "\n") {
		kind, args, err := datadriven.ParseLine(line)
		if err != nil || len(args) == 0 {
			d.Fatalf(t, "not a container: %q", line)
		}
		c := v1.Container{Name: args[0].Key}
		for _, arg := range args[1:] {
			switch arg.Key {
			case "policy":
				p := v1.ContainerRestartPolicy(arg.Vals[0])
				c.RestartPolicy = &p
			case "rules":
				spec.rules[c.Name] = parseRules(t, d, arg.Vals)
			default:
				d.Fatalf(t, "unknown argument %q of container %s", arg.Key, c.Name)
			}
		}
		if Kind(kind) == KindSidecar {
			always := PolicyAlways
			c.RestartPolicy = &always
		}
		if spec.rules[c.Name] != nil && c.RestartPolicy == nil {
			d.Fatalf(t, "container %s has rules, and so needs a policy", c.Name)
		}
		switch Kind(kind) {
		case KindInit, KindSidecar:
			spec.InitContainers = append(spec.InitContainers, c)
		case KindRegular:
			spec.Containers = append(spec.Containers, c)
		case KindEphemeral:
			spec.EphemeralContainers = append(spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: c.Name},
			})
		default:
			d.Fatalf(t, "unknown kind %q of container %s", kind, c.Name)
		}
	}
	gates := allGates
	if d.HasArg("gates") {
		gates = scanGates(t, d)
	}
	*tr = transcript{spec: spec}
	tr.world = newWorld(spec, gates, duration(t, d, initial), duration(t, d, limit), duration(t, d, reset))
	tr.probed = d.HasArg("probed")
	for i := range tr.template {
		if tr.template[i].Kind == KindEphemeral {
			// The machine does not start it.
			tr.start(i)
		}
	}
}

// step carries out the first actions of a step. It returns the plan and its
// printed form.
func (tr *transcript) step(t *testing.T, d *datadriven.TestData, actions int, lostWrite bool) (p Plan, shown string) {
	look := &mutation{after: func(w *world, plan *Plan) { p, shown = *plan, w.describe(*plan) }}
	before, steps := tr.state, []state(nil)
	if broken := tr.act(&search{mutate: look}, func() { steps = append(steps, tr.state) }); broken != "" {
		d.Fatalf(t, "%s\n%s%s", broken, shown, tr.String())
	}
	if actions >= 0 && actions < len(steps) {
		tr.state = steps[actions]
	}
	if lostWrite {
		tr.conditions = before.conditions
	}
	for _, k := range p.Kill {
		if tr.containers[k.Container].killing && tr.stops[k.Container].IsZero() {
			tr.stops[k.Container] = tr.now.Add(k.Grace)
		}
	}
	return p, shown
}

// run is the command run.
func (tr *transcript) run(t *testing.T, d *datadriven.TestData) string {
	end := tr.now
	if arg, ok := arg(d, "for"); ok {
		end = end.Add(duration(t, d, arg.Vals[0]))
	}
	var b strings.Builder
	for range 1000 {
		before := tr.state
		p, _ := tr.step(t, d, -1, false)
		if p.Phase != before.machine.phase {
			fmt.Fprintf(&b, "%s %s: %s\n", tr.since(), p.Phase, p.Reason)
		}
		for i := range tr.template {
			c := &tr.containers[i]
			switch {
			case !c.alive() || tr.template[i].Kind == KindEphemeral:
			case c.killing:
				tr.exit(i, 143)
			case !c.started:
				c.started = true
			case tr.template[i].Kind == KindInit:
				tr.exit(i, 0)
			}
		}
		switch {
		case tr.changed(&before):
		case p.Next.After(tr.now) && !p.Next.After(end):
			tr.now = p.Next
		default:
			tr.now = end
			return b.String() + tr.String()
		}
	}
	d.Fatalf(t, "it does not come to rest")
	return ""
}

// exit ends the container in the world, and its time to stop.
func (tr *transcript) exit(i int, code int32) {
	tr.stops[i] = time.Time{}
	tr.world.exit(i, code)
}

func (tr *transcript) tick(d time.Duration) string {
	var b strings.Builder
	from := tr.now
	tr.now = tr.now.Add(d)
	fmt.Fprintf(&b, "%s\n", tr.since())
	for i, at := range tr.stops {
		if at.After(from) && !at.After(tr.now) {
			fmt.Fprintf(&b, "%s gets SIGKILL\n", tr.template[i].Name)
		}
	}
	return b.String()
}

// since returns the time since the pod began.
func (tr *transcript) since() string {
	return "+" + tr.now.Sub(epoch).String()
}

// restartAgent restarts the agent and prints the resulting phase.
func (tr *transcript) restartAgent(gates Gates) string {
	tr.stops = [maxContainers]time.Time{}
	p := *tr.pod
	p.gates, p.template = gates, tr.spec.containers(gates)
	tr.pod = &p
	tr.crash(gates)
	for i := range tr.template {
		// With other gates, an exit may trigger a restart.
		if c := &tr.containers[i]; !tr.triggered && !tr.finished && !c.plannedExit && !c.previous && tr.triggers(i) {
			tr.triggered, tr.triggeredAt = true, c.finishedAt
		}
	}
	return fmt.Sprintf("found %s\n%s", tr.machine.phase, tr.String())
}

// forget makes the runtime forget all containers. Their numbers continue.
func (tr *transcript) forget() {
	p := *tr.pod
	for i := range tr.template {
		p.ids[i] = p.ids[i][tr.containers[i].number:]
		tr.containers[i] = instance{}
	}
	tr.pod, tr.triggered, tr.finished = &p, false, false
}

// alive returns the index of the container in a command.
func (tr *transcript) alive(t *testing.T, d *datadriven.TestData) int {
	for i := range tr.template {
		if len(d.CmdArgs) == 0 || tr.template[i].Name != d.CmdArgs[0].Key {
			continue
		}
		if !tr.containers[i].alive() {
			d.Fatalf(t, "%s does not run", tr.template[i].Name)
		}
		return i
	}
	d.Fatalf(t, "no such container")
	return 0
}

func parseRules(t *testing.T, d *datadriven.TestData, texts []string) []Rule {
	var rules []Rule
	for _, text := range texts {
		words := strings.Fields(text)
		if len(words) < 3 {
			d.Fatalf(t, "not a rule: %q", text)
		}
		rule := Rule{Action: Action(words[0]), Operator: Operator(words[1])}
		for _, word := range words[2:] {
			code, err := strconv.ParseInt(word, 10, 32)
			if err != nil {
				d.Fatalf(t, "not a rule: %q: %v", text, err)
			}
			rule.Values = append(rule.Values, int32(code))
		}
		rules = append(rules, rule)
	}
	return rules
}

func scanGates(t *testing.T, d *datadriven.TestData) (gates Gates) {
	arg, _ := arg(d, "gates")
	for _, name := range arg.Vals {
		switch name {
		case "ContainerRestartRules":
			gates.ContainerRestartRules = true
		case "RestartPodOnContainerExits":
			gates.RestartPod = true
		case "RestartAllContainersOnContainerExits":
			gates.RestartAllContainers = true
		case "":
		default:
			d.Fatalf(t, "unknown gate %q", name)
		}
	}
	return gates
}

func duration(t *testing.T, d *datadriven.TestData, text string) time.Duration {
	v, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return v
}

// arg returns the argument of a directive with the key.
func arg(d *datadriven.TestData, key string) (datadriven.CmdArg, bool) {
	i := slices.IndexFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
	if i < 0 {
		return datadriven.CmdArg{}, false
	}
	return d.CmdArgs[i], true
}

// maybeScanArgs is ScanArgs for an argument that may be missing.
func maybeScanArgs(t *testing.T, d *datadriven.TestData, key string, values ...any) {
	if d.HasArg(key) {
		d.ScanArgs(t, key, values...)
	}
}
