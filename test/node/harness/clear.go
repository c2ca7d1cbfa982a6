// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// createFixedPaths creates the fixed paths that the host lacks. It records them in
// the node's folder, so that clear can remove them even if the harness was killed.
func createFixedPaths(dir string) error {
	var missing []string
	for _, path := range fixedPaths {
		for p := path; ; p = filepath.Dir(p) {
			if _, err := os.Stat(p); err == nil {
				break
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			missing = append(missing, p)
		}
	}
	// In this order a folder comes after its parent.
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if err := os.WriteFile(filepath.Join(dir, createdFile), []byte(strings.Join(missing, "\n")), 0o644); err != nil {
		return err
	}
	for _, p := range missing {
		if err := os.Mkdir(p, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeFixedPaths undoes createFixedPaths.
func removeFixedPaths(dir string) error {
	list, err := os.ReadFile(filepath.Join(dir, createdFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(strings.Fields(string(list))) {
		// This fails if another program put something else or files there, which must stay.
		_ = syscall.Rmdir(p)
	}
	return nil
}

// clear waits until all processes and mounts of a node are gone, then removes its
// cgroups, its mount points and its folder.
func (h *Harness) clear(dir string) error {
	// The kernel removes a node's processes and mounts, but not immediately.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := Await(ctx, "the end of the node in "+dir, 10*time.Second, func(context.Context) error {
		return errors.Join(remains(dir)...)
	}); err != nil {
		return err
	}
	groups, err := cgroupsOf(dir)
	if err != nil {
		return err
	}
	h.cgroups = append(h.cgroups, groups...)
	if err := removeCgroups(ctx, groups); err != nil {
		return err
	}
	if err := removeFixedPaths(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// clearStale clears the nodes that a killed harness left.
func (h *Harness) clearStale(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, createdFile)); err == nil {
		if err := h.takeMachine(ctx); err != nil {
			return err
		}
		defer h.leaveMachine()
	}
	return h.clear(dir)
}

// remains lists the processes and mounts that use paths with this prefix.
func remains(prefix string) []error {
	var found []error
	all, err := mounts()
	if err != nil {
		return []error{err}
	}
	for _, m := range all {
		if strings.HasPrefix(m.point, prefix) || strings.HasPrefix(m.root, prefix) {
			found = append(found, fmt.Errorf("mount of %s on %s", m.root, m.point))
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return append(found, err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that has just ended has no command line.
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if bytes.Contains(line, []byte(prefix)) || strings.HasPrefix(cwd, prefix) {
			found = append(found, fmt.Errorf("process %d: %s", pid, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))))
		}
	}
	return found
}

// cgroupsOf returns the cgroups of a node's containers. Another runtime on the
// machine may use the same parent, so only cgroups that are named after this node's
// containers belong to it.
func cgroupsOf(dir string) ([]string, error) {
	ids, err := loggedIDs(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range runtimes {
		for _, id := range ids {
			names = append(names, r.cgroups(id)...)
		}
	}
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range all {
		if m.fstype != "cgroup" && m.fstype != "cgroup2" {
			continue
		}
		for _, name := range names {
			path := filepath.Join(m.point, name)
			if _, err := os.Stat(path); err == nil {
				found = append(found, path)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// EndLeft ends the processes of containers that the runtime has lost, because the kubelet
// was killed while they were started. It removes their cgroups, and returns the numbers of
// both. There must be no other containers.
func (n *Node) EndLeft() (cgroups, processes int, err error) {
	groups, err := cgroupsOf(n.Spec.Dir)
	if err != nil {
		return 0, 0, err
	}
	left := map[int]bool{}
	for _, group := range groups {
		// It may have just ended.
		text, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		for _, field := range strings.Fields(string(text)) {
			// With another PID namespace the number is 0.
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				left[pid] = true
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	return len(groups), len(left), removeCgroups(n.ctx, groups)
}

// removeCgroups waits until cgroups have no processes, and removes them, and their parent
// if it is then empty. The kernel removes the files in a cgroup with it.
func removeCgroups(ctx context.Context, groups []string) error {
	return Await(ctx, "the removal of the node's cgroups", 10*time.Second, func(context.Context) error {
		var failed []error
		for _, group := range groups {
			if err := syscall.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, fmt.Errorf("cgroup %s: %w", group, err))
			}
			// This fails while the parent has other cgroups, and then it must stay.
			_ = syscall.Rmdir(filepath.Dir(group))
		}
		return errors.Join(failed...)
	})
}
