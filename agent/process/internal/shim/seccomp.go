// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

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
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(value uint32, skipTrue, skipFalse uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: skipTrue, Jf: skipFalse, K: value}
	}
	result := func(value uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value} }
	return []unix.SockFilter{
		load(architecture),
		equal(auditArch[runtime.GOARCH], 0, 2),
		load(number),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: x32},
		result(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)),
		equal(unix.SYS_ADD_KEY, 8, 0),
		equal(unix.SYS_REQUEST_KEY, 7, 0),
		equal(unix.SYS_KEYCTL, 6, 0),
		equal(unix.SYS_PRCTL, 0, 4),
		load(first),
		equal(unix.PR_SET_DUMPABLE, 0, 2),
		load(second),
		equal(1, 2, 0),
		result(unix.SECCOMP_RET_ALLOW),
		result(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)),
		result(unix.SECCOMP_RET_ERRNO), // It does nothing and returns 0.
	}
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
// directory of the machine. Without the filter, bwrap would make itself dumpable then.
func hide(bwrap string) error {
	text, err := os.ReadFile(bwrap)
	if err != nil {
		return err
	}
	return os.WriteFile(hiddenBwrap, text, 0o111)
}
