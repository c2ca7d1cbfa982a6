// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/node"
)

// restart is what a scenario expects of one.
type restart struct {
	// before is the pod before it.
	before *v1.Pod
	// cause is the container that was the trigger.
	cause  string
	action v1.ContainerRestartRuleAction
	// newSandbox is true where the node lost the old one.
	newSandbox bool
	// unseen is true where the API server cannot have seen the condition be True.
	unseen bool
}

// restarted waits for the end of a restart and checks everything that is to hold
// after any.
func (p *pod) restarted(r restart) *v1.Pod {
	p.t.Helper()
	if r.action == "" {
		r.action = v1.ContainerRestartRuleAction(*actionFlag)
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
	if statusOf(after, r.cause).State.Running != nil {
		p.assertPreviousLog(r.cause)
	}
	p.alwaysRunning()
	return after
}

// assertKept checks that the pod is still the same.
func (p *pod) assertKept(r restart, after *v1.Pod) {
	p.t.Helper()
	assert.Equal(p.t, r.before.UID, after.UID, "the pod's UID")
	if !r.newSandbox {
		assert.NotEmpty(p.t, after.Status.PodIP, "the pod's IP")
		assert.Equal(p.t, r.before.Status.PodIP, after.Status.PodIP, "the pod's IP")
		assert.Len(p.t, p.sandboxes, 1, "sandboxes before the restart")
		assert.Equal(p.t, p.sandboxes, p.listSandboxes(), "the pod's sandboxes")
	}
	for _, s := range statuses(r.before) {
		if s.ContainerID == "" {
			continue
		}
		for n := 1; n <= p.starts(s.Name); n++ {
			// A container writes it after the line in the journal.
			assert.EventuallyWithT(p.t, func(c *assert.CollectT) {
				assert.FileExists(c, filepath.Join(p.dataDir(), fmt.Sprintf("%s.%d", s.Name, n)), "what start %d of %s put into the emptyDir", n, s.Name)
			}, patience, 20*time.Millisecond)
		}
	}
}

// assertStatuses checks restart counts and last states.
func (p *pod) assertStatuses(r restart, after *v1.Pod) {
	p.t.Helper()
	// A kubelet before v1.36 forgets the last state of an init container once it has removed
	// the container.
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
		assert.Equal(p.t, old.ContainerID, last.ContainerID, "container ID in the last state of %s", s.Name)
		assert.False(p.t, last.StartedAt.IsZero() || last.FinishedAt.IsZero(), "times in the last state of %s: %+v", s.Name, last)
		if s.Name == r.cause {
			assert.EqualValues(p.t, triggerExit, last.ExitCode, "exit code in the last state of %s", s.Name)
		}
	}
	// The kubelet made up such a status because it had no better one.
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
	message := fmt.Sprintf("Container %s exited with code %d, triggering pod restart", r.cause, triggerExit)
	if !r.unseen {
		want := []string{"True ContainerExited: " + message, "False ContainersStarted: " + message}
		assert.Equal(p.t, want, p.conditions(kind, r.before.ResourceVersion), "history of the condition %s", kind)
	}
	for _, other := range []v1.PodConditionType{conditionOf(node.ActionRestartPod), v1.AllContainersRestarting} {
		if other != kind {
			assert.Empty(p.t, p.conditions(other, r.before.ResourceVersion), "history of the condition %s", other)
		}
	}
	assert.NoError(p.t, node.Await(p.ctx, "the event", 10*time.Second, func(ctx context.Context) error {
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

// assertPreviousLog checks that there is the log of the instance before the one
// that runs. Of a container that has ended, as an init container has, the kubelet
// keeps one instance alone.
func (p *pod) assertPreviousLog(name string) {
	p.t.Helper()
	// Right after its start, a kubelet does not know the pod yet, and the program has
	// written nothing yet.
	assert.NoError(p.t, node.Await(p.ctx, "the previous log of "+name, 5*time.Second, func(ctx context.Context) error {
		want := fmt.Sprintf("%s: start %d\n", name, p.starts(name)-1)
		options := &v1.PodLogOptions{Container: name, Previous: true}
		log, err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(p.name, options).DoRaw(ctx)
		if err == nil && string(log) != want {
			err = fmt.Errorf("it is %q, want %q", log, want)
		}
		return err
	}))
}

// conditions returns the states of a condition that followed a version of the
// pod.
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

// assertOver checks that a run of a container that is over has stayed so: what
// was a last state is not the present one in any later version of the pod.
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

// attempts returns when the kubelet tried to create a container, the oldest
// first: each time it makes a file for the termination message. Those that found
// no ConfigMap are not among them.
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

// assertAttempts waits until there were so many attempts to start a container,
// and checks that the curve lies between those from the first given on, which
// counts from 0. The retry that upstream makes comes after 10 to 15 s.
func (p *pod) assertAttempts(name string, first, count int) {
	p.t.Helper()
	var at []time.Time
	require.NoError(p.t, node.Await(p.ctx, fmt.Sprintf("attempt %d to start %s of pod %s", count, name, p.name), time.Duration(count)*20*time.Second, func(context.Context) error {
		if at = p.attempts(name); len(at) < count {
			return fmt.Errorf("there were %d", len(at))
		}
		return nil
	}))
	for k := first; k+1 < count; k++ {
		p.assertDelay(fmt.Sprintf("between attempts %d and %d to start %s", k+1, k+2, name), k, at[k+1].Sub(at[k]).Seconds())
	}
}

// assertDelay checks that the k-th delay of the curve, counted from 0, and not
// much more passed.
func (p *pod) assertDelay(what string, k int, took float64) {
	p.t.Helper()
	assert.GreaterOrEqual(p.t, took, curve(k).Seconds()-0.05, "seconds %s", what)
	assert.Less(p.t, took, curve(k).Seconds()+3, "seconds %s", what)
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
