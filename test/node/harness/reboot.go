// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ofPod reports whether a process belongs to a pod, or watches a container of one.
func ofPod(pid int) bool {
	cgroup, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return bytes.Contains(cgroup, []byte("kubepods")) || bytes.HasPrefix(name, []byte("containerd-shim")) || bytes.HasPrefix(name, []byte("conmon"))
}

// Reboot has the effect of a reboot of the node: no process runs, and the container
// runtime keeps only its state on disk. The API server stays, as it would run on
// another machine. At the end the container runtime runs again.
func (n *Node) Reboot() error {
	n.Kubelet.Kill()
	n.RuntimeProcess.Kill()
	keep := []int{os.Getpid()}
	for _, p := range n.started {
		if p != n.Kubelet && p != n.RuntimeProcess {
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
	groups, err := cgroupsOf(n.Spec.Dir)
	if err != nil {
		return err
	}
	if err := removeCgroups(n.ctx, groups); err != nil {
		return err
	}
	state := n.runtime.state(n.Spec.Dir)
	all, err := mounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(all) {
		if m.fstype == "overlay" && strings.HasPrefix(m.point, n.Spec.Dir) || slices.ContainsFunc(state, func(dir string) bool { return strings.HasPrefix(m.point, dir+"/") }) {
			if err := syscall.Unmount(m.point, syscall.MNT_DETACH); err != nil {
				return err
			}
		}
	}
	for _, dir := range state {
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
	return n.RunRuntime()
}
