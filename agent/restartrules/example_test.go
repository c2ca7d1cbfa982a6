// SPDX-License-Identifier: Apache-2.0

package restartrules_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/agent/restartrules"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

func ExampleValidate() {
	never := v1.ContainerRestartPolicyNever
	spec := &v1.PodSpec{Containers: []v1.Container{{Name: "main", RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleAction(restartpod.ActionRestartPod),
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: "Equals", Values: []int32{88}},
	}}}}}
	opts := restartrules.Options{Gates: restartpod.Gates{ContainerRestartRules: true, RestartPod: true}}
	for _, err := range restartrules.Validate(spec, field.NewPath("spec"), opts) {
		fmt.Println(err)
	}
	// Output: spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: "Equals": supported values: "In", "NotIn"
}
