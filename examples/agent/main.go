// SPDX-License-Identifier: Apache-2.0

// Command agent is the loop of a node agent around the library, of which it uses nothing but public packages. Its
// runtime is a fake one: for two seconds it runs a pod whose main container crashes twice and then restarts the pod.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

var gates = restartpod.Gates{ContainerRestartRules: true, RestartPod: true}

// agent looks after one pod. The pods of a node may share the back-off.
type agent struct {
	pod     *v1.Pod
	machine *restartpod.Machine
	backOff *backoff.Backoff
	runtime *fakeRuntime
}

// Eventf prints an event; an agent with an API server has a record.EventRecorder of client-go instead.
func (a *agent) Eventf(_ runtime.Object, eventType, reason, format string, args ...any) {
	a.runtime.say("event %s %s: %s", eventType, reason, fmt.Sprintf(format, args...))
}

// sync does the work that is due for the pod, and returns when to call it again if no container exits before.
func (a *agent) sync(now time.Time) time.Time {
	containers := restartpod.Containers(&a.pod.Spec, gates)
	specs := slices.Concat(a.pod.Spec.InitContainers, a.pod.Spec.Containers)
	for i := range containers {
		containers[i].Status = a.runtime.newest[containers[i].Name]
	}
	plan := a.machine.Step(restartpod.Observation{Now: now, Containers: containers, GracePeriod: 30 * time.Second})
	a.pod.Status.Conditions = plan.Conditions
	for _, event := range plan.Events {
		a.Eventf(a.pod, event.Type, event.Reason, "%s", event.Message)
	}
	for _, kill := range plan.Kill {
		a.Eventf(a.pod, v1.EventTypeNormal, "Killing", "%s", kill.Message)
		a.runtime.exit(containers[kill.Container].Name, 143)
	}
	changed := len(plan.Kill) > 0
	var errs []error
	for _, i := range plan.Start {
		var statuses []kuberuntime.ContainerStatus
		// What exited in the pod's previous run is nothing to wait for in this one.
		if s := containers[i].Status; s != nil && (plan.Old == nil || !plan.Old[i]) {
			statuses = append(statuses, kuberuntime.ContainerStatus{
				Name: specs[i].Name, State: kuberuntime.ContainerState(s.State), ExitCode: int(s.ExitCode),
				StartedAt: s.StartedAt, FinishedAt: s.FinishedAt,
			})
		}
		wait, _, err := kuberuntime.DoBackOff(context.Background(), a, a.pod, &specs[i], statuses, a.backOff, now)
		if !wait {
			changed = true
			err = kuberuntime.StartFailed(a.pod, &specs[i], true, a.runtime.start(specs[i].Name, now), a.backOff, now)
		}
		errs = append(errs, err)
	}
	if changed {
		return now // The machine has to see it before it can say what is next.
	}
	delay, _ := kuberuntime.NextSync(errors.Join(errs...), 10*time.Second, time.Minute, now)
	if next := now.Add(delay); plan.Next.IsZero() || next.Before(plan.Next) {
		return next
	}
	return plan.Next
}

// run runs the pod for two seconds of the clock.
func run(c clock.Clock, out io.Writer) {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy:  v1.RestartPolicyAlways,
		InitContainers: []v1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}},
		Containers: []v1.Container{{Name: "main", RestartPolicy: &always, RestartPolicyRules: []v1.ContainerRestartRule{{
			Action:    restartpod.ContainerRestartRuleActionRestartPod,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
		}}}},
	}}
	pod.Name, pod.Namespace, pod.UID = "worker", "default", "b36a0a9e"
	// A node's own curve comes from config.Load and config.Resolve, which bring k8s.io/component-base with them.
	backOff := kuberuntime.NewBackOff(c, backoff.Curve{Initial: time.Second, Max: time.Minute})
	r := &fakeRuntime{
		clock: c, began: c.Now(), out: out, newest: map[string]*restartpod.Status{},
		codes: map[string][]int32{"setup": {0, 0}, "main": {1, 1, 88}},
	}
	// An agent whose containers outlive it calls the machine's Recover before its first sync.
	a := &agent{pod, restartpod.New(backOff, pod, gates), backOff, r}
	for end := r.began.Add(2 * time.Second); c.Now().Before(end); {
		next := a.sync(c.Now())
		if next.After(end) {
			next = end
		}
		r.wait(next)
	}
}

func main() {
	run(clock.RealClock{}, os.Stdout)
}
