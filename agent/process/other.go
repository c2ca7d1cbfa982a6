// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import (
	"context"
	"errors"
	"net"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
)

// Runtime is only available on Linux.
type Runtime struct{ agent.Runtime }

var errOther = errors.New("the process runtime needs Linux, not " + runtime.GOOS)

// New returns an error.
func New(*v1.Pod, string, Options, func(container string, line []byte), func(container, message string)) (*Runtime, error) {
	return nil, errOther
}

// Dial returns an error.
func (*Runtime) Dial(context.Context, string, time.Duration) (net.Conn, error) { return nil, errOther }

// CanConfine returns an error.
func CanConfine() error { return errOther }

// Validate returns nil.
func Validate(*v1.Pod, Options) field.ErrorList { return nil }
