// SPDX-License-Identifier: Apache-2.0

package restartpod_test

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
	restartpod "github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// agent manages one pod. The type and its methods are the part to copy.
type agent struct {
	pod     *v1.Pod
	gates   restartpod.Gates
	machine *restartpod.Machine
	runtime *toyRuntime
}

// rules returns the restart rules of a container. From k8s.io/api v0.34 on, they come
// from its RestartPolicyRules.
func rules(c *v1.Container) []restartpod.Rule {
	if c.Name != "main" {
		return nil
	}
	return []restartpod.Rule{{Action: restartpod.ActionRestartPod, Operator: restartpod.OperatorIn, Values: []int32{88}}}
}

// containers returns the pod's containers with their statuses in the runtime.
func (a *agent) containers() []restartpod.Container {
	containers := restartpod.Containers(&a.pod.Spec, a.gates, rules)
	for i := range containers {
		containers[i].Status = a.runtime.newest[containers[i].Name]
	}
	return containers
}

// sync must be called when the pod changes, and at the returned time if that is not
// zero.
func (a *agent) sync(now time.Time) (next time.Time) {
	containers := a.containers()
	plan := a.machine.Step(restartpod.Observation{
		Now: now, Containers: containers, SandboxLost: a.runtime.sandboxLost, Deleted: a.pod.DeletionTimestamp != nil,
		GracePeriod: time.Duration(*a.pod.Spec.TerminationGracePeriodSeconds) * time.Second,
	})
	a.setConditions(plan.Conditions)
	for _, event := range plan.Events {
		fmt.Println("event", event.Type, event.Reason, event.Message)
	}
	for _, kill := range plan.Kill {
		// An agent that does not wait for the end must skip a container that it is
		// already stopping.
		fmt.Println("event", v1.EventTypeNormal, "Killing", kill.Message)
		a.runtime.stop(containers[kill.Container].Name, kill, now)
	}
	for _, i := range plan.Start {
		// A container must be skipped while restart.DoBackOff makes it wait, and
		// sync must be called when it has waited. Do not pass DoBackOff a status that is
		// true in plan.Old.
		a.runtime.start(containers[i].Name, now)
	}
	return plan.Next
}

// setConditions sets the conditions in the pod's status. It keeps their times.
func (a *agent) setConditions(conditions []v1.PodCondition) {
	for _, c := range a.pod.Status.Conditions {
		if c.Type != restartpod.PodRestarting && c.Type != restartpod.AllContainersRestarting {
			conditions = append(conditions, c)
		}
	}
	a.pod.Status.Conditions = conditions
}

// toyRuntime is a runtime whose containers run until they are stopped. Only the
// container setup succeeds at once.
type toyRuntime struct {
	newest      map[string]*restart.ContainerStatus
	started     int
	sandboxLost bool
}

func (r *toyRuntime) start(name string, now time.Time) {
	r.started++
	id := fmt.Sprintf("%s-%d", name, r.started)
	fmt.Println("start", id)
	r.newest[name] = &restart.ContainerStatus{Name: name, ID: id, State: restart.ContainerStateRunning, Started: true, StartedAt: now}
	if name == "setup" {
		r.exit(name, 0, now)
	}
}

func (r *toyRuntime) stop(name string, kill restartpod.Kill, now time.Time) {
	fmt.Println("stop", kill.ID, "within", kill.Grace)
	r.exit(name, 143, now)
}

func (r *toyRuntime) exit(name string, code int32, now time.Time) {
	s := r.newest[name]
	s.State, s.ExitCode, s.FinishedAt = restart.ContainerStateExited, code, now
}

// The main container of a pod exits with the code that restarts the pod.
func Example() {
	always, never, grace := restartpod.PolicyAlways, restartpod.PolicyNever, int64(30)
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy:                 v1.RestartPolicyNever,
		TerminationGracePeriodSeconds: &grace,
		InitContainers:                []v1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}},
		Containers:                    []v1.Container{{Name: "main", RestartPolicy: &never}},
	}}
	pod.UID = "b36a0a9e"
	gates := restartpod.Gates{ContainerRestartRules: true, RestartPod: true}
	// All pods of the node share the back-off.
	backOff := backoff.NewBackOff(10*time.Second, 300*time.Second)
	runtime := &toyRuntime{newest: map[string]*restart.ContainerStatus{}}
	a := &agent{pod, gates, restartpod.New(backOff, pod, gates), runtime}
	// A restart may be in progress from before the agent was started.
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a.machine.Recover(pod.Status.Conditions, a.containers(), now)

	for range 3 {
		a.sync(now)
	}
	now = now.Add(time.Minute)
	runtime.exit("main", 88, now)
	for range 5 {
		a.sync(now)
	}
	fmt.Println(pod.Status.Conditions[0].Type, pod.Status.Conditions[0].Status)
	// Output:
	// start setup-1
	// start proxy-2
	// start main-3
	// event Normal PodRestarting Container main exited with code 88, triggering pod restart
	// event Normal Killing Stopping container proxy, the pod is being restarted
	// stop proxy-2 within 30s
	// start setup-4
	// start proxy-5
	// start main-6
	// PodRestarting False
}
