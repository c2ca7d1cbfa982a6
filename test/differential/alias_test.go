// SPDX-License-Identifier: Apache-2.0

// Package backoff compares the library's back-off with that of client-go's newest version, which the library does not require.
// corrections_test.go is a link to the library's file.
package backoff

import (
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

type Backoff = backoff.Backoff

const ContainerResetPeriod = backoff.ContainerResetPeriod

var (
	NewFakeBackOffWithJitter = backoff.NewFakeBackOffWithJitter
	FlatReset                = backoff.FlatReset
	ProportionalReset        = backoff.ProportionalReset
)
