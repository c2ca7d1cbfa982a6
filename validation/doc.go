// SPDX-License-Identifier: Apache-2.0

// Package validation validates the settings of container restarts: the
// crashLoopBackOff of a KubeletConfiguration ([ValidateCrashLoopBackOff]), and
// the restart policies and rules of a pod's containers
// ([ValidatePodRestartRules]). As in Kubernetes, errors are a field.ErrorList.
// The functions [WarningsForCrashLoopBackOff] and [WarningsForPodRestartRules]
// return a [Warning] for a valid value that may not have the expected effect.
package validation
