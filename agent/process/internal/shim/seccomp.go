// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"encoding/binary"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The values that a seccomp filter returns, from linux/seccomp.h.
const (
	seccompAllow = 0x7fff0000
	seccompErrno = 0x00050000
)

// auditArch maps GOARCH to the value by which the kernel tells system calls apart.
var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "386": unix.AUDIT_ARCH_I386, "arm64": unix.AUDIT_ARCH_AARCH64, "arm": unix.AUDIT_ARCH_ARM,
	"ppc64le": unix.AUDIT_ARCH_PPC64LE, "s390x": unix.AUDIT_ARCH_S390X, "riscv64": unix.AUDIT_ARCH_RISCV64, "loong64": unix.AUDIT_ARCH_LOONGARCH64,
}

// keyFilter returns a seccomp filter against the system calls for the kernel's keys,
// which no namespace separates: a key of the user stays after the pod. It has the form that
// bwrap reads. System calls of another architecture, such as 32-bit ones, do not exist.
func keyFilter() []byte {
	const number, architecture, x32 = 0, 4, 1 << 30 // Offsets in struct seccomp_data, and the first number of another set.
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: architecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch[runtime.GOARCH], SkipFalse: 2},
		bpf.LoadAbsolute{Off: number, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		bpf.RetConstant{Val: seccompErrno | uint32(unix.ENOSYS)},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_ADD_KEY, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_REQUEST_KEY, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_KEYCTL, SkipTrue: 1},
		bpf.RetConstant{Val: seccompAllow},
		bpf.RetConstant{Val: seccompErrno | uint32(unix.EPERM)},
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		panic(err) // The program is constant.
	}
	var filter []byte
	for _, i := range raw { // struct sock_filter
		filter = binary.NativeEndian.AppendUint16(filter, i.Op)
		filter = append(filter, i.Jt, i.Jf)
		filter = binary.NativeEndian.AppendUint32(filter, i.K)
	}
	return filter
}
