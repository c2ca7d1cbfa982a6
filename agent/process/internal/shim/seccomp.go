// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// auditArch maps GOARCH to the value by which the kernel tells system calls apart.
var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "386": unix.AUDIT_ARCH_I386, "arm64": unix.AUDIT_ARCH_AARCH64, "arm": unix.AUDIT_ARCH_ARM,
	"ppc64le": unix.AUDIT_ARCH_PPC64LE, "s390x": unix.AUDIT_ARCH_S390X, "riscv64": unix.AUDIT_ARCH_RISCV64, "loong64": unix.AUDIT_ARCH_LOONGARCH64,
}

// filter returns a seccomp filter against the system calls for the kernel's keys, which no
// namespace separates: a key of the user stays after the pod. System calls of another
// architecture, such as 32-bit ones, do not exist. A process that is not dumpable stays so,
// see hide.
func filter() []unix.SockFilter {
	// Offsets in struct seccomp_data, and the first number of another set of calls.
	const number, architecture, x32 = 0, 4, 1 << 30
	first, second := uint32(16), uint32(24)
	if runtime.GOARCH == "s390x" {
		first, second = first+4, second+4 // The lower half of a big-endian argument.
	}
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: architecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch[runtime.GOARCH], SkipFalse: 2},
		bpf.LoadAbsolute{Off: number, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_ADD_KEY, SkipTrue: 8},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_REQUEST_KEY, SkipTrue: 7},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_KEYCTL, SkipTrue: 6},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_PRCTL, SkipFalse: 4},
		bpf.LoadAbsolute{Off: first, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PR_SET_DUMPABLE, SkipFalse: 2},
		bpf.LoadAbsolute{Off: second, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 1, SkipTrue: 2},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO}, // It does nothing and returns 0.
	})
	if err != nil {
		panic(err) // The program is constant.
	}
	var filter []unix.SockFilter
	for _, i := range raw {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return filter
}

// filterBytes returns the filter in the form that bwrap reads.
func filterBytes() []byte {
	f := filter()
	return unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), len(f)*unix.SizeofSockFilter)
}

// setFilter sets the filter for this process and all processes that it starts.
func setFilter() error {
	f := filter()
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// hide makes a copy of bwrap in hiddenBwrap. The kernel makes the process of a program that
// it may not read not dumpable. So when bwrap has entered the namespaces of a container,
// the processes there can neither trace it nor use its files, of which /proc/.. is the root
// directory of the machine. bwrap would make itself dumpable then, but for the filter.
func hide(bwrap string) error {
	text, err := os.ReadFile(bwrap)
	if err != nil {
		return err
	}
	return os.WriteFile(hiddenBwrap, text, 0o111)
}
