// SPDX-License-Identifier: Apache-2.0

//go:build linux && (386 || arm)

package shim

import "golang.org/x/sys/unix"

// The system calls without 32 in their names take 16-bit IDs on these architectures.
const (
	sysSetgroups = unix.SYS_SETGROUPS32
	sysSetresgid = unix.SYS_SETRESGID32
	sysSetresuid = unix.SYS_SETRESUID32
)
