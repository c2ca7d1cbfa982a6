// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// restart has the expectations of a scenario for a restart.
type restart struct {
	// before is the pod before the restart.
	before *v1.Pod
	// cause is the name of the container that triggers it.
	cause  string
	action v1.ContainerRestartRuleAction
	// code is the exit code that triggers it, by default triggerExit.
	code int32
	// newSandbox is true if the node lost the old sandbox.
	newSandbox bool
	// unseen is true if the API server cannot have seen the condition with status True.
	unseen bool
}

// restarted waits for the end of a restart, and checks everything that must hold after
// any restart.
func (p *pod) restarted(r restart) *v1.Pod {
	p.t.Helper()
	if r.action == "" {
		r.action = v1.ContainerRestartRuleAction(*actionFlag)
	}
	if r.code == 0 {
		r.code = triggerExit
	}
	kind := conditionOf(r.action)
	after := p.latest("the end of the restart", func(now *v1.Pod) error {
		if c := conditionIn(now, kind); c.Status != v1.ConditionFalse {
			return fmt.Errorf("condition %s is %q", kind, c.Status)
		}
		for _, s := range append(slices.Clone(now.Status.ContainerStatuses), sidecars(now)...) {
			if s.State.Running == nil {
				return fmt.Errorf("%s does not run: %+v", s.Name, s.State)
			}
			if s.ContainerID == statusOf(r.before, s.Name).ContainerID {
				return fmt.Errorf("%s was not restarted", s.Name)
			}
		}
		return nil
	})
	p.assertKept(r, after)
	p.assertStatuses(r, after)
	p.assertOver()
	p.assertCondition(r, kind)
	if statusOf(after, r.cause).State.Running != nil && !p.lost(r) {
		p.assertPreviousLog(r.cause)
	}
	p.alwaysRunning()
	return after
}

// assertKept checks that the restart kept the pod, its sandbox and its volumes.
func (p *pod) assertKept(r restart, after *v1.Pod) {
	p.t.Helper()
	assert.Equal(p.t, r.before.UID, after.UID, "the pod's UID")
	if !r.newSandbox {
		assert.NotEmpty(p.t, after.Status.PodIP, "the pod's IP")
		assert.Equal(p.t, r.before.Status.PodIP, after.Status.PodIP, "the pod's IP")
		assert.Len(p.t, p.sandboxes, 1, "sandboxes before the restart")
		assert.Equal(p.t, p.sandboxes, p.listSandboxes(), "the pod's sandboxes")
		assert.Equal(p.t, []string{after.Status.PodIP}, p.network.Addresses, "the addresses that are reserved for the pod")
		assert.Len(p.t, p.network.Interfaces, 1, "the pod's interfaces on the bridge")
		assert.Equal(p.t, []string{"ADD"}, p.network.Calls, "calls of the network plugins")
		assert.Equal(p.t, p.network, p.networkOf(p.sandboxes[0]), "the pod's network")
	}
	for _, s := range statuses(r.before) {
		if s.ContainerID == "" {
			continue
		}
		for n := 1; n <= p.starts(s.Name); n++ {
			// A container writes this file after its line in the journal.
			assert.EventuallyWithT(p.t, func(c *assert.CollectT) {
				assert.FileExists(c, filepath.Join(p.dataDir(), fmt.Sprintf("%s.%d", s.Name, n)), "what start %d of %s put into the volume", n, s.Name)
			}, patience, 20*time.Millisecond)
		}
	}
}

// assertReleased checks that a lost sandbox, or that of a deleted pod, has nothing of the
// network any more.
func (p *pod) assertReleased(sandbox string, before harness.PodNetwork) {
	p.t.Helper()
	require.Len(p.t, before.Interfaces, 1, "interfaces of sandbox %s", sandbox)
	after := p.networkOf(sandbox)
	assert.Empty(p.t, after.Addresses, "addresses that are reserved for sandbox %s, which had %v", sandbox, before.Addresses)
	calls := "^ADD DEL$"
	if *machineFlag { // A kubelet that is so busy may stop a sandbox more than once, and a plugin must allow that.
		calls = "^ADD( DEL)+$"
	}
	assert.Regexp(p.t, calls, strings.Join(after.Calls, " "), "calls of the network plugins for sandbox %s", sandbox)
	_, err := net.InterfaceByName(strings.Fields(before.Interfaces[0])[1])
	assert.Error(p.t, err, "the interface of sandbox %s still exists", sandbox)
}

// lost reports whether nothing is left of the instances before the restart: after a
// reboot CRI-O removes all containers.
func (p *pod) lost(r restart) bool { return r.newSandbox && p.crio() }

// assertStatuses checks restart counts and last states.
func (p *pod) assertStatuses(r restart, after *v1.Pod) {
	p.t.Helper()
	// A kubelet before v1.36 loses the last state of an init container when it removes the
	// container.
	initOnly := map[string]bool{}
	for _, c := range after.Spec.InitContainers {
		initOnly[c.Name] = c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways
	}
	for _, s := range statuses(after) {
		old := statusOf(r.before, s.Name)
		if old.ContainerID == "" {
			assert.Zero(p.t, s.RestartCount, "restarts of %s, which had not started", s.Name)
			continue
		}
		assert.Equal(p.t, old.RestartCount+1, s.RestartCount, "restarts of %s", s.Name)
		assert.NotEqual(p.t, old.ContainerID, s.ContainerID, "container ID of %s", s.Name)
		last := s.LastTerminationState.Terminated
		if last == nil && initOnly[s.Name] && p.before(p.t, 36) {
			continue
		}
		if !assert.NotNil(p.t, last, "last state of %s", s.Name) {
			continue
		}
		if p.lost(r) && s.Name != r.cause {
			continue
		}
		assert.Equal(p.t, old.ContainerID, last.ContainerID, "container ID in the last state of %s", s.Name)
		assert.False(p.t, last.StartedAt.IsZero() || last.FinishedAt.IsZero(), "times in the last state of %s: %+v", s.Name, last)
		if s.Name == r.cause {
			assert.EqualValues(p.t, r.code, last.ExitCode, "exit code in the last state of %s", s.Name)
		}
	}
	if p.lost(r) {
		return
	}
	// The kubelet makes up such a status if it has no other.
	for _, seen := range p.pods.of(p.name) {
		for _, s := range statuses(seen.pod) {
			for _, state := range []v1.ContainerState{s.State, s.LastTerminationState} {
				if end := state.Terminated; end != nil && end.Reason == "ContainerStatusUnknown" {
					assert.Fail(p.t, fmt.Sprintf("at %s the status of %s was %+v", seen.at.Format("05.000"), s.Name, s))
					return
				}
			}
		}
	}
}

// assertCondition checks the history of the condition, and the event.
func (p *pod) assertCondition(r restart, kind v1.PodConditionType) {
	p.t.Helper()
	message := fmt.Sprintf("Container %s exited with code %d, triggering pod restart", r.cause, r.code)
	if !r.unseen {
		want := []string{"True ContainerExited: " + message, "False ContainersStarted: " + message}
		assert.Equal(p.t, want, p.conditions(kind, r.before.ResourceVersion), "history of the condition %s", kind)
	}
	for _, other := range []v1.PodConditionType{conditionOf(harness.ActionRestartPod), v1.AllContainersRestarting} {
		if other != kind {
			assert.Empty(p.t, p.conditions(other, r.before.ResourceVersion), "history of the condition %s", other)
		}
	}
	assert.NoError(p.t, harness.Await(p.ctx, "the event", patience, func(ctx context.Context) error {
		events, err := p.kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=PodRestarting,involvedObject.uid=" + string(p.uid),
		})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("the pod has no event with reason PodRestarting")
		}
		if got := events.Items[len(events.Items)-1].Message; got != message {
			return fmt.Errorf("the event says %q, want %q", got, message)
		}
		return nil
	}))
}

// assertNotRestarted checks that the kubelet never restarted the pod in place.
func (p *pod) assertNotRestarted() {
	p.t.Helper()
	for _, kind := range []v1.PodConditionType{conditionOf(harness.ActionRestartPod), v1.AllContainersRestarting} {
		for _, s := range p.pods.of(p.name) {
			if c := conditionIn(s.pod, kind); !assert.NotEqual(p.t, v1.ConditionTrue, c.Status, "pod %s, condition %s: %s", p.name, kind, c.Message) {
				break
			}
		}
	}
	assert.Zero(p.t, p.occurrences("PodRestarting"), "pod %s: events of restarts", p.name)
}

// assertPreviousLog checks that the log of the previous instance exists. For an exited
// container, such as an init container, the kubelet keeps only one instance.
func (p *pod) assertPreviousLog(name string) {
	p.t.Helper()
	// Right after its start, a kubelet does not know the pod yet, and the program may not
	// have written anything.
	assert.NoError(p.t, harness.Await(p.ctx, "the previous log of "+name, patience, func(ctx context.Context) error {
		want := fmt.Sprintf("%s: start %d\n", name, p.starts(name)-1)
		options := &v1.PodLogOptions{Container: name, Previous: true}
		log, err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(p.name, options).DoRaw(ctx)
		if err == nil && string(log) != want {
			err = fmt.Errorf("it is %q, want %q", log, want)
		}
		return err
	}))
}

// conditions returns the states of a condition after a version of the pod.
func (p *pod) conditions(kind v1.PodConditionType, version string) (states []string) {
	after := version == ""
	for _, s := range p.pods.of(p.name) {
		if c := conditionIn(s.pod, kind); after && c.Type != "" {
			states = append(states, fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message))
		}
		after = after || s.pod.ResourceVersion == version
	}
	return slices.Compact(states)
}

// assertOver checks that previous runs stay over: a last state is not a current state in
// any later version of the pod.
func (p *pod) assertOver() {
	p.t.Helper()
	last := map[string]bool{}
	for _, seen := range p.pods.of(p.name) {
		for _, s := range statuses(seen.pod) {
			if end := s.State.Terminated; end != nil && last[end.ContainerID] {
				assert.Fail(p.t, fmt.Sprintf("at %s the previous run of %s was the present one again: %+v", seen.at.Format("05.000"), s.Name, s))
				return
			}
			if end := s.LastTerminationState.Terminated; end != nil && end.ContainerID != "" {
				last[end.ContainerID] = true
			}
		}
	}
}

// attempts returns the times at which the kubelet tried to create a container, oldest
// first. Each time it creates a file for the termination message, unless a ConfigMap is
// missing.
func (p *pod) attempts(name string) (at []time.Time) {
	p.t.Helper()
	files, err := os.ReadDir(p.Path("kubelet", "pods", string(p.uid), "containers", name))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(p.t, err)
	}
	for _, f := range files {
		info, err := f.Info()
		require.NoError(p.t, err)
		at = append(at, info.ModTime())
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// assertAttempts waits for the given number of attempts to start a container. It checks
// that none after the first ones was earlier than the curve says, beginning with attempt
// first, counted from 0.
func (p *pod) assertAttempts(name string, first, count int) {
	p.t.Helper()
	var at []time.Time
	require.NoError(p.t, harness.Await(p.ctx, fmt.Sprintf("attempt %d to start %s of pod %s", count, name, p.name), time.Duration(count)*usual.Maximum+patience, func(context.Context) error {
		if at = p.attempts(name); len(at) < count {
			return fmt.Errorf("there were %d", len(at))
		}
		return nil
	}))
	for k := first; k+1 < count; k++ {
		// The times of files are exact only to some milliseconds.
		assert.GreaterOrEqual(p.t, at[k+1].Sub(at[k]), curve(k)-50*time.Millisecond, "between attempts %d and %d to start %s", k+1, k+2, name)
	}
}

// alwaysRunning checks that the pod's phase never left Pending and Running.
func (p *pod) alwaysRunning() {
	p.t.Helper()
	for _, s := range p.pods.of(p.name) {
		if phase := s.pod.Status.Phase; phase != v1.PodPending && phase != v1.PodRunning {
			assert.Fail(p.t, "the pod's phase became "+string(phase))
			return
		}
	}
}
