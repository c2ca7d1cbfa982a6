// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// overScenarios end a restart before all containers run. They check that the previous
// run is only in the last states, and that neither its exit codes nor those of containers
// that the kubelet itself stopped decide anything.
var overScenarios = []scenario{
	// A failure policy looks at the exit codes in the current states.
	{"JobFailsByThePresentRun", func(t *testing.T, e *e2e) {
		p := e.createJob(t, failurePolicy(batchv1.PodFailurePolicyActionIgnore, triggerExit, batchv1.PodFailurePolicyActionFailJob, 7), failsAfterRestart())
		p.event("other", 1, "start")
		p.put("go")
		job := p.awaitJob("the failure", hasFailed)
		assert.Equal(t, batchv1.JobReasonPodFailurePolicy, failure(job).Reason)
		assert.Contains(t, failure(job).Message, "exit code 7")
		p.assertFailedOnce()
	}},
	{"JobIsNotFailedByThePreviousRun", func(t *testing.T, e *e2e) {
		p := e.createJob(t, failurePolicy(batchv1.PodFailurePolicyActionFailJob, triggerExit, batchv1.PodFailurePolicyActionCount, 7), failsAfterRestart())
		p.event("other", 1, "start")
		p.put("go")
		job := p.awaitJob("the failure", hasFailed)
		assert.Equal(t, batchv1.JobReasonBackoffLimitExceeded, failure(job).Reason, "%s", failure(job).Message)
		p.assertFailedOnce()
	}},

	// With exit codes of 0 as current states, the pod would be Succeeded.
	{"DrainedInBackOff", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(nil, successful(), container("other", "term=0")))
		before := p.inBackOff(3)
		p.delete(6)
		// Not gone, because assertEnded needs the last version that the watch shows.
		require.NoError(t, harness.Await(e.ctx, "the end of pod "+p.name, patience, func(ctx context.Context) error {
			if history := p.pods.of(p.name); !history[len(history)-1].deleted {
				return errors.New("it still exists")
			}
			return nil
		}))
		p.assertEnded(before)
	}},
	{"DeadlineInBackOff", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(nil, successful(), container("other", "term=0")))
		before := p.inBackOff(3)
		require.NoError(t, harness.Await(e.ctx, "the update", patience, func(ctx context.Context) error {
			pods := e.kube.CoreV1().Pods(metav1.NamespaceDefault)
			now, err := pods.Get(ctx, p.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Spec.ActiveDeadlineSeconds = ptr.To(int64(1))
			_, err = pods.Update(ctx, now, metav1.UpdateOptions{})
			return err
		}))
		after := p.latest("the end", func(now *v1.Pod) error {
			if now.Status.Phase == v1.PodRunning {
				return errors.New("it runs")
			}
			return nil
		})
		assert.Equal(t, "DeadlineExceeded", after.Status.Reason)
		p.assertEnded(before)
	}},
	{"SandboxLostInBackOff", func(t *testing.T, e *e2e) {
		const crash = "after=other exit=42"
		p := e.create(t, podSpec(nil, triggering(container("main", crash, crash, crash, crash, "")), container("other", "")))
		p.inBackOff(3)
		lost := p.listSandboxes()[0]
		network := p.networkOf(lost)
		p.loseSandbox()
		p.event("main", 5, "start")
		now := p.running()
		p.assertReleased(lost, network)
		fresh := slices.DeleteFunc(p.listSandboxes(), func(id string) bool { return id == lost })
		require.Len(t, fresh, 1, "new sandboxes")
		assert.Equal(t, []string{now.Status.PodIP}, p.networkOf(fresh[0]).Addresses, "the addresses of the new sandbox")
		assert.NotContains(t, network.Addresses, now.Status.PodIP, "the new address")
		p.assertOver()
		p.alwaysRunning()
	}},

	// KEP-5307: a rule applies to exits of the container itself, not to exits that the
	// kubelet causes.
	{"LivenessProbeTriggersNothing", func(t *testing.T, e *e2e) {
		main := container("main", "")
		main.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		main = ruled(main, harness.ActionRestartPod, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0)
		main.LivenessProbe = probe("alive")
		p := e.newPod(t)
		p.put("alive")
		p.create(podSpec(nil, main, container("other", "")))
		before := p.running()
		for k := range 2 {
			p.remove("alive")
			p.event("main", k+1, "exit:143")
			p.put("alive")
			p.event("main", k+2, "start")
			p.assertWaited("main", k+1, curve(k))
		}
		p.assertDelays("main", curveDelays(2)...)
		after := p.latest("the restarts of main", func(now *v1.Pod) error {
			if s := statusOf(now, "main"); s.RestartCount < 2 || s.State.Running == nil {
				return fmt.Errorf("main: %+v", s)
			}
			return nil
		})
		assert.Equal(t, statusOf(before, "other").ContainerID, statusOf(after, "other").ContainerID, "container ID of other")
		p.assertNotRestarted()
		p.assertStarts(map[string]int{"main": 3, "other": 1})
	}},

	// The restart policy does not restart the container, and neither does the rule.
	{"LivenessProbeEndsForGood", func(t *testing.T, e *e2e) {
		main := ruled(container("main", ""), harness.ActionRestartPod, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0)
		main.LivenessProbe = probe("alive")
		p := e.newPod(t)
		p.put("alive")
		p.create(podSpec(nil, main, container("other", "wait=go exit=0")))
		p.running()
		p.remove("alive")
		p.event("main", 1, "exit:143")
		p.latest("the end of main", func(now *v1.Pod) error {
			if s := statusOf(now, "main").State.Terminated; s == nil || s.ExitCode != 143 {
				return fmt.Errorf("main: %+v", statusOf(now, "main").State)
			}
			return nil
		})
		p.signal("go")
		p.latest("the phase", func(now *v1.Pod) error {
			if now.Status.Phase != v1.PodFailed {
				return fmt.Errorf("it is %s", now.Status.Phase)
			}
			return nil
		})
		p.assertStarts(map[string]int{"main": 1, "other": 1})
	}},

	// A pod that has not finished continues in a new sandbox, with any restart policy.
	{"SandboxLostAfterInit", func(t *testing.T, e *e2e) {
		main := container("main", "")
		main.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		p := e.newPod(t)
		p.create(podSpec([]v1.Container{container("init1", "exit=0")}, needsConfigMap(p, main)))
		p.latest("the missing ConfigMap", func(now *v1.Pod) error {
			if w := statusOf(now, "main").State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" {
				return fmt.Errorf("main: %+v", statusOf(now, "main").State)
			}
			return nil
		})
		p.loseSandbox()
		p.createConfigMap()
		p.running()
		p.assertStarts(map[string]int{"init1": 2, "main": 1})
		p.alwaysRunning()
	}},
}

// failsAfterRestart returns a pod that a test can trigger. After the restart, its init
// container exits with code 7.
func failsAfterRestart() v1.PodSpec {
	return podSpec([]v1.Container{container("init1", "exit=0", "exit=7", "exit=0")},
		triggering(container("main", "wait=go exit=42", "")), container("other", ""))
}

// failurePolicy returns a policy with two rules, one for each exit code.
func failurePolicy(first batchv1.PodFailurePolicyAction, firstCode int32, second batchv1.PodFailurePolicyAction, secondCode int32) *batchv1.PodFailurePolicy {
	on := func(action batchv1.PodFailurePolicyAction, code int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{code},
		}}
	}
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{on(first, firstCode), on(second, secondCode)}}
}

// failure returns the job's condition Failed, or an empty condition.
func failure(job *batchv1.Job) batchv1.JobCondition {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == v1.ConditionTrue {
			return c
		}
	}
	return batchv1.JobCondition{}
}

func hasFailed(job *batchv1.Job) bool { return failure(job).Type != "" }

// assertFailedOnce checks that the job had only one pod, and the states of its containers.
func (p *pod) assertFailedOnce() {
	p.t.Helper()
	pods := p.podsOfJob()
	require.Len(p.t, pods, 1, "pods of the job")
	p.assertStarts(map[string]int{"init1": 2, "main": 1, "other": 1})
	main := statusOf(&pods[0], "main")
	assert.Nil(p.t, exitOf(main.State), "how main ended, in its present state")
	assert.Equal(p.t, ptr.To(int32(triggerExit)), exitOf(main.LastTerminationState), "how main ended, in its last state")
	assert.Equal(p.t, ptr.To(int32(7)), exitOf(statusOf(&pods[0], "init1").State), "how init1 ended, in its present state")
	p = &pod{e2e: p.e2e, t: p.t, name: pods[0].Name}
	p.assertOver()
}

// exitOf returns the exit code of a terminated instance, or nil. A status without a
// container ID does not count: the kubelet makes up such a status for a container that
// never existed.
func exitOf(s v1.ContainerState) *int32 {
	if s.Terminated == nil || s.Terminated.ContainerID == "" {
		return nil
	}
	return &s.Terminated.ExitCode
}

// successful returns a container that restarts the pod when it succeeds.
func successful() v1.Container {
	return ruled(container("main", "after=other sleep=1s exit=0"), v1.ContainerRestartRuleAction(*actionFlag), v1.ContainerRestartRuleOnExitCodesOpIn, 0)
}

// inBackOff waits until all containers of the pod wait after the given number of restarts.
func (p *pod) inBackOff(restarts int32) *v1.Pod {
	p.t.Helper()
	return p.await("the back-off", patience, func(now *v1.Pod) error {
		for i := range now.Spec.Containers {
			s := statusOf(now, now.Spec.Containers[i].Name)
			if w := s.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || s.RestartCount != restarts {
				return fmt.Errorf("%s: %+v", now.Spec.Containers[i].Name, s)
			}
		}
		return nil
	})
}

// assertEnded checks the end of a pod that waited for a restart after a run in which all
// its containers had succeeded.
func (p *pod) assertEnded(before *v1.Pod) {
	p.t.Helper()
	history := p.pods.of(p.name)
	after := history[len(history)-1].pod
	assert.Equal(p.t, v1.PodFailed, after.Status.Phase, "the pod's last phase")
	for _, name := range []string{"main", "other"} {
		old, s := statusOf(before, name).LastTerminationState.Terminated, statusOf(after, name)
		require.NotNil(p.t, old, "last state of %s in back-off", name)
		assert.Nil(p.t, exitOf(s.State), "how %s ended, in its present state", name)
		if assert.NotNil(p.t, s.LastTerminationState.Terminated, "last state of %s", name) {
			assert.Equal(p.t, old.ContainerID, s.LastTerminationState.Terminated.ContainerID, "container ID in the last state of %s", name)
		}
	}
	p.assertOver()
}

// loseSandbox kills the process of the pod's sandbox.
func (p *pod) loseSandbox() {
	p.t.Helper()
	sandboxes := p.listSandboxes()
	require.Len(p.t, sandboxes, 1, "sandboxes")
	p.killSandbox(sandboxes[0])
}

// killSandbox kills the process of a sandbox. CRI-O's has none, unless its containers
// share it.
func (p *pod) killSandbox(id string) {
	p.t.Helper()
	runtime := p.runtime()
	status, err := runtime.PodSandboxStatus(p.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	require.NoError(p.t, err)
	var verbose struct{ PID int }
	require.NoError(p.t, json.Unmarshal([]byte(status.Info["info"]), &verbose), "%v", status.Info)
	if verbose.PID > 0 {
		require.NoError(p.t, syscall.Kill(verbose.PID, syscall.SIGKILL))
		return
	}
	_, err = runtime.StopPodSandbox(p.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	require.NoError(p.t, err)
}

// probe returns a probe that succeeds while a file is in the pod's folder.
func probe(name string) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/actor", "exists", name}}},
		PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 10,
	}
}

// needsConfigMap adds a reference to the ConfigMap that createConfigMap creates.
func needsConfigMap(p *pod, c v1.Container) v1.Container {
	c.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: p.name}}}}
	return c
}

func (p *pod) createConfigMap() {
	p.t.Helper()
	maps := p.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	_, err := maps.Create(p.ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: p.name}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	p.t.Cleanup(p.deleteConfigMap)
}

func (p *pod) deleteConfigMap() {
	err := p.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(p.ctx, p.name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		assert.NoError(p.t, err)
	}
}
