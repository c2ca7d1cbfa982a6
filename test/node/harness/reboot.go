// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ofPod reports whether a process belongs to a pod, or is the shim of one.
func ofPod(pid int) bool {
	cgroup, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return bytes.Contains(cgroup, []byte("kubepods")) || bytes.HasPrefix(name, []byte("containerd-shim"))
}

// Reboot has the effect of a reboot of the node: no process runs, and containerd and
// runc keep only their state on disk. The API server stays, as it would run on
// another machine. At the end containerd runs again.
func (n *Node) Reboot() error {
	n.Kubelet.Kill()
	n.Containerd.Kill()
	keep := []int{os.Getpid()}
	for _, p := range n.started {
		if p != n.Kubelet && p != n.Containerd {
			keep = append(keep, p.PID())
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && !slices.Contains(keep, pid) && (!n.Spec.Machine || ofPod(pid)) {
			// An error means that the process has already ended.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	state := containerdState(n.Spec.Dir)
	groups, err := cgroupsOf(n.Spec.Dir)
	if err != nil {
		return err
	}
	if err := Await(n.ctx, "the removal of the cgroups", 10*time.Second, func(context.Context) error {
		return removeCgroups(groups)
	}); err != nil {
		return err
	}
	all, err := mounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(all) {
		if strings.HasPrefix(m.point, state) {
			if err := syscall.Unmount(m.point, syscall.MNT_DETACH); err != nil {
				return err
			}
		}
	}
	for _, dir := range []string{state, "/run/containerd"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return n.RunContainerd()
}
