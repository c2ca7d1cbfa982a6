// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/config"
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
