// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import (
	"errors"
	"runtime"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
)

// Runtime is a Runtime on Linux.
type Runtime struct{ agent.Runtime }

// New returns an error: the runtime needs Linux.
func New(*v1.Pod, string, func(container string, line []byte), func(container, message string)) (*Runtime, error) {
	return nil, errors.New("the process runtime needs Linux, and this is " + runtime.GOOS)
}

// Shim is for Linux.
func Shim() {}
