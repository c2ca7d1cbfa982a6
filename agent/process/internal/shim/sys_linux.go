// SPDX-License-Identifier: Apache-2.0

//go:build linux && !386 && !arm

package shim

import "golang.org/x/sys/unix"

const (
	sysSetgroups = unix.SYS_SETGROUPS
	sysSetresgid = unix.SYS_SETRESGID
	sysSetresuid = unix.SYS_SETRESUID
)
