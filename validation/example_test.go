// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

func ExampleValidateCrashLoopBackOff() {
	maximum := 500 * time.Millisecond
	s := config.Settings{MaxContainerRestartPeriod: &maximum, KubeletCrashLoopBackOffMax: true}
	for _, err := range validation.ValidateCrashLoopBackOff(s, field.NewPath("crashLoopBackOff")) {
		fmt.Println(err)
	}
	// Output: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: "500ms": must be from 1s to 300s
}

func ExampleValidatePodRestartRules() {
	never := v1.ContainerRestartPolicyNever
	spec := &v1.PodSpec{Containers: []v1.Container{{Name: "main", RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{{
		Action:    restartpod.ContainerRestartRuleActionRestartPod,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: "Equals", Values: []int32{88}},
	}}}}}
	opts := validation.RestartRuleOptions{Gates: restartpod.Gates{ContainerRestartRules: true, RestartPod: true}}
	for _, err := range validation.ValidatePodRestartRules(spec, field.NewPath("spec"), opts) {
		fmt.Println(err)
	}
	// Output: spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: "Equals": supported values: "In", "NotIn"
}
