// SPDX-License-Identifier: Apache-2.0

// Package validation validates the crashLoopBackOff of a KubeletConfiguration. As in
// Kubernetes, errors are a field.ErrorList. [WarningsForCrashLoopBackOff] returns a
// [Warning] for a valid value that may not have the expected effect.
package validation
