// SPDX-License-Identifier: Apache-2.0

// Package restartrules reads and validates the restart policies and rules of a pod's
// containers. It is not part of the library's module, because k8s.io/api has these
// rules since v0.34. As in Kubernetes, errors are a field.ErrorList, and warnings are
// about a valid value that may not have the expected effect.
package restartrules
