// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// newPod returns a pod of containers; asInit and asSidecar mark the init containers. All
// its processes have its name: in their environment, or in the arguments of their
// parents.
func newPod(policy v1.RestartPolicy, containers ...v1.Container) *v1.Pod {
	name := "test-" + rand.String(10)
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{RestartPolicy: policy},
	}
	for _, c := range containers {
		if image, isInit := strings.CutPrefix(c.Image, initPrefix); isInit {
			c.Image = image
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// initPrefix marks the image of an init container until newPod removes it.
const initPrefix = "init:"

type option func(*v1.Container)

// script returns a container that runs a shell script. $CTL is a folder that it shares
// with the test.
func script(name, script string, options ...option) v1.Container {
	c := v1.Container{Name: name, Command: []string{"/bin/sh", "-c", script}}
	for _, o := range options {
		o(&c)
	}
	return c
}

// container returns a container that exits with the code that the test writes
// (command.exit), or after SIGTERM.
func container(name string, options ...option) v1.Container {
	return script(name, onTerm+"echo >$CTL/"+name+".ready; "+untilTold(name), options...)
}

// untilTold waits for an exit code. A shell that itself reads would miss a signal that
// comes just before the read.
func untilTold(name string) string { return "{ read code <$CTL/" + name + "; exit $code; } & wait $!" }

// onTerm makes a shell exit after SIGTERM with the code of a process without a handler.
const onTerm = "trap 'exit 143' TERM; "

// setup is an init container that succeeds by itself.
func setup(name string) v1.Container { return script(name, "exit 0", asInit) }

func asInit(c *v1.Container) { c.Image = initPrefix }

func asSidecar(c *v1.Container) {
	asInit(c)
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
}

// stubborn makes a container ignore SIGTERM.
func stubborn(c *v1.Container) {
	c.Command[2] = "trap '' TERM; " + strings.TrimPrefix(c.Command[2], onTerm)
}

// probed adds a startup probe that passes when the test writes to NAME.probe
// (command.tell).
func probed(c *v1.Container) {
	c.StartupProbe = &v1.Probe{ProbeHandler: execProbe("read x <$CTL/" + c.Name + ".probe"), TimeoutSeconds: 1000, PeriodSeconds: 1}
}

func execProbe(script string) v1.ProbeHandler {
	return v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c", script}}}
}

func preStop(script string) option {
	return func(c *v1.Container) {
		c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: execProbe(script).Exec}}
	}
}

// rule adds a restart rule, and the restart policy that rules need.
func rule(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) option {
	return func(c *v1.Container) {
		if c.RestartPolicy == nil {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyNever)
		}
		c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
			Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
		})
	}
}

// restartPodOn88 is the rule of most scenarios.
var restartPodOn88 = rule(v1.ContainerRestartRuleAction(restartpod.ActionRestartPod), v1.ContainerRestartRuleOnExitCodesOpIn, 88)
