// SPDX-License-Identifier: Apache-2.0

// Package validation checks what sets restarts: the crashLoopBackOff of a
// KubeletConfiguration, and the restart rules of a pod's containers. As in
// Kubernetes, errors are a field.ErrorList and warnings are sentences.
package validation
