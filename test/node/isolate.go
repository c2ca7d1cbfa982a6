// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// nodeCommand is what the harness calls itself with to become a node.
	nodeCommand = "node-main"
	runPrefix   = "run-"
	createdFile = "created-on-host"
	// socketLimit is how long the path of a socket may be on Linux.
	socketLimit = 107
)

// harness runs nodes one after the other in a folder of its own.
type harness struct {
	work, bin, etcd, apiserver string
	keep                       bool
	lock                       *os.File
	// machine is held while there is a node, see takeMachine.
	machine net.Listener
	// cgroups are those that nodes had, to look for once more at the end.
	cgroups []string
}

// newHarness takes the work folder for itself and clears what a killed
// predecessor may have left.
func newHarness(ctx context.Context, work string) (*harness, error) {
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, fmt.Errorf("--work %s: %w", work, err)
	}
	// The kernel names mounts, which clear looks for, by their real paths.
	if work, err = filepath.EvalSymlinks(work); err != nil {
		return nil, fmt.Errorf("--work: %w", err)
	}
	longest := filepath.Join(work, runPrefix+"0000000000", "kubelet/pod-resources/kubelet.sock")
	if len(longest) > socketLimit {
		return nil, fmt.Errorf("--work %s: a socket below it would be %s, %d characters long; at most %d are possible",
			work, longest, len(longest), socketLimit)
	}
	h := &harness{work: work, bin: filepath.Join(work, "bin")}
	if err := os.MkdirAll(h.bin, 0o755); err != nil {
		return nil, fmt.Errorf("--work %s: %w", work, err)
	}
	if h.lock, err = os.Create(filepath.Join(work, "lock")); err != nil {
		return nil, fmt.Errorf("--work %s: %w", work, err)
	}
	if err := syscall.Flock(int(h.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		h.lock.Close()
		return nil, fmt.Errorf("--work %s: another harness is using it (%w)", work, err)
	}
	stale, err := filepath.Glob(filepath.Join(work, runPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range stale {
		if err := h.clearStale(ctx, dir); err != nil {
			return nil, fmt.Errorf("what an earlier run left: %w", err)
		}
	}
	return h, nil
}

// run makes one node, lets it measure a scenario and returns what it did.
func (h *harness) run(ctx context.Context, s Scenario, label, kubelet string) (run Run, err error) {
	sp := spec{Label: label, Scenario: s, Kubelet: kubelet, APIServer: h.apiserver, Etcd: h.etcd}
	var out bytes.Buffer
	if err := h.node(ctx, s.Name+", "+label, sp, &out, nodeCommand); err != nil {
		return run, err
	}
	if err := json.Unmarshal(out.Bytes(), &run); err != nil {
		return run, fmt.Errorf("%s, %s: result of the node: %w", s.Name, label, err)
	}
	return run, nil
}

// node makes one node in a folder of its own, of this program with the
// arguments, and removes all of it after its end. It does so too when the
// context ends. The logs stay if something failed.
func (h *harness) node(ctx context.Context, title string, sp spec, out io.Writer, args ...string) (err error) {
	if err := h.takeMachine(ctx); err != nil {
		return err
	}
	defer h.leaveMachine()
	dir, err := os.MkdirTemp(h.work, runPrefix)
	if err != nil {
		return err
	}
	sp.ID, sp.Dir, sp.Bin = filepath.Base(dir), dir, h.bin
	sp.Logs = filepath.Join(h.work, "logs", sp.ID+"-"+strings.ReplaceAll(title, ", ", "-"))
	if err := os.MkdirAll(sp.Logs, 0o755); err != nil {
		return err
	}
	defer func() {
		if cleared := h.clear(dir); cleared != nil {
			err = errors.Join(err, cleared)
		}
		switch {
		case ctx.Err() != nil && !h.keep, err == nil && !h.keep:
			err = errors.Join(err, os.RemoveAll(sp.Logs))
			// Fails while it holds other logs, which is right.
			_ = os.Remove(filepath.Dir(sp.Logs))
		default:
			progress("%s: logs are in %s", title, sp.Logs)
		}
	}()
	if err := createFixedPaths(dir); err != nil {
		return err
	}
	if err := isolate(ctx, sp, out, args...); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w", title, err)
	}
	return nil
}

// takeMachine waits until no other harness has a node on this machine, whatever
// its work folder. Two would share the processors that they measure, and the
// folders of createFixedPaths: with the folder that one of them removes, the
// other's mount on it goes. The lock is a name that the kernel drops with the
// process.
func (h *harness) takeMachine(ctx context.Context) (err error) {
	said := false
	for h.machine == nil {
		if h.machine, err = net.Listen("unix", "@kubelet-backoff-node"); err == nil {
			break
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		if !said {
			progress("waiting for the end of another harness on this machine")
			said = true
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (h *harness) leaveMachine() {
	h.machine.Close()
	h.machine = nil
}

// isolate makes a node of this program, called with the arguments, in its own
// PID and mount namespaces, and in its own network too where the spec says so.
// This is what makes the cleaning up certain: the node is process 1 of
// its PID namespace, and the kernel kills all others in it when it ends, shims
// and containers that have detached themselves included; the mounts go with the
// last process. It works the same when the node is killed, and when the harness
// is: then the node's standard input ends, and so does the node.
func isolate(ctx context.Context, s spec, out io.Writer, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		// A Ctrl-C on the terminal is for the harness alone, which then ends the
		// node as a whole.
		Setpgid: true,
	}
	if s.Network {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("a process in new namespaces cannot be started: %w", err)
	}
	if _, err := in.Write(text); err != nil && !errors.Is(err, syscall.EPIPE) {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the node failed: %w", err)
	}
	return nil
}

// createFixedPaths makes those that the host lacks, and notes them in the
// node's folder so that clear can undo it, also after the harness was killed.
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
	// In this order a folder comes after the one it lies in.
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
		// Only an empty folder goes: what somebody put there meanwhile stays.
		_ = os.Remove(p)
	}
	return nil
}

// clear waits until nothing of a node runs any more, then removes its cgroups,
// its mount points and its folder.
func (h *harness) clear(dir string) error {
	// The kernel takes a node's processes and mounts down on its own, but not in
	// an instant.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := await(ctx, "the end of the node in "+dir, 10*time.Second, func(context.Context) error {
		return errors.Join(remains(dir)...)
	}); err != nil {
		return err
	}
	groups, err := cgroupsOf(dir)
	if err != nil {
		return err
	}
	h.cgroups = append(h.cgroups, groups...)
	if err := await(ctx, "the removal of the node's cgroups", 10*time.Second, func(context.Context) error {
		return removeCgroups(groups)
	}); err != nil {
		return err
	}
	if err := removeFixedPaths(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// clearStale is clear for what a killed harness left.
func (h *harness) clearStale(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, createdFile)); err == nil {
		if err := h.takeMachine(ctx); err != nil {
			return err
		}
		defer h.leaveMachine()
	}
	return h.clear(dir)
}

// remains lists the processes and mounts that belong to folders whose path
// begins so.
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
		// A process that has just ended has no command line any more.
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if bytes.Contains(line, []byte(prefix)) || strings.HasPrefix(cwd, prefix) {
			found = append(found, fmt.Errorf("process %d: %s", pid, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))))
		}
	}
	return found
}

// cgroupsOf returns the cgroups of a node's containers. A kubelet without
// cgroups per quality of service leaves their place to containerd, which puts
// each below its namespace; a container that still exists has a bundle of the
// same name. Another containerd on the machine may use the same parent, so only
// what has one of these names is the node's.
func cgroupsOf(dir string) ([]string, error) {
	bundles, err := filepath.Glob(filepath.Join(containerdState(dir), "io.containerd.runtime.v2.task", containerdNamespace, "*"))
	if err != nil {
		return nil, err
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
		for _, bundle := range bundles {
			path := filepath.Join(m.point, containerdNamespace, filepath.Base(bundle))
			if _, err := os.Stat(path); err == nil {
				found = append(found, path)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// removeCgroups removes cgroups in which nothing runs, and their parent where
// that leaves it empty. The files in a cgroup are the kernel's and go with it.
func removeCgroups(groups []string) error {
	var failed []error
	for _, group := range groups {
		if err := syscall.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("cgroup %s: %w", group, err))
		}
		// Fails while another container is in it, which is right.
		_ = syscall.Rmdir(filepath.Dir(group))
	}
	return errors.Join(failed...)
}

// check looks once more, after everything, for what should be gone.
func (h *harness) check(w io.Writer) error {
	// Not the whole work folder: it also appears in the arguments of whatever
	// started the harness.
	found := remains(filepath.Join(h.work, runPrefix))
	for _, cgroup := range h.cgroups {
		if _, err := os.Stat(cgroup); err == nil {
			found = append(found, fmt.Errorf("cgroup %s", cgroup))
		}
	}
	dirs, err := filepath.Glob(filepath.Join(h.work, runPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		found = append(found, fmt.Errorf("folder %s", dir))
	}
	if len(found) > 0 {
		return fmt.Errorf("left behind:\n%w", errors.Join(found...))
	}
	fmt.Fprintf(w, "nothing is left behind: no process, mount, cgroup or folder of a node\n")
	return nil
}
