// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	runPrefix   = "run-"
	createdFile = "created-on-host"
	// socketLimit is the maximum length of a socket's path on Linux.
	socketLimit = 107
)

// Harness runs nodes one after another in its own folder.
type Harness struct {
	// Keep keeps the logs even if nothing fails.
	Keep bool

	work, bin, etcd string
	lock            *os.File
	// machine is the lock that takeMachine holds while there is a node.
	machine net.Listener
	// cgroups are the cgroups that nodes had. Check looks for them at the end.
	cgroups []string
}

// Needs lists the parts of a node other than the kubelet.
type Needs struct {
	// Runtime makes NewHarness build the container runtime of this name, and the images.
	Runtime string
	// Built says that Build has filled the work folder.
	Built bool
	// APIServer makes NewHarness look for etcd.
	APIServer bool
	// HostPath makes NewHarness build the hostpath CSI driver, if it builds the runtime.
	HostPath bool
	// JobSet makes NewHarness build JobSet's controller.
	JobSet bool
}

// NewHarness locks the work folder, by default _output/node of the repository, and
// builds the programs that nodes need. The kubernetes programs must exist. Their
// paths become absolute.
func NewHarness(ctx context.Context, work string, programs []Program, needs Needs) (*Harness, error) {
	build := needs.Runtime != "" && !needs.Built
	source, err := sourceFolder()
	if err != nil && (build || needs.JobSet || work == "") {
		return nil, err
	}
	if work == "" {
		work = filepath.Join(source, "..", "..", "_output", "node")
	}
	etcd, err := prerequisites(programs, needs)
	if err != nil {
		return nil, err
	}
	h, err := newHarness(ctx, work)
	if err != nil {
		return nil, err
	}
	h.etcd = etcd
	if needs.JobSet {
		if err := buildJobSet(ctx, source, h.bin); err != nil {
			return nil, cause(ctx, err)
		}
	}
	if !build {
		return h, nil
	}
	return h, h.build(ctx, source, needs)
}

// Build builds a container runtime, the hostpath CSI driver and the images for a machine on
// which NewHarness finds them in the work folder. It needs no root.
func Build(ctx context.Context, work, runtime string) error {
	source, err := sourceFolder()
	if err != nil {
		return err
	}
	h, err := newHarness(ctx, work)
	if err != nil {
		return err
	}
	return h.build(ctx, source, Needs{Runtime: runtime, HostPath: true})
}

func (h *Harness) build(ctx context.Context, source string, needs Needs) error {
	r, err := runtimeNamed(needs.Runtime)
	if err != nil {
		return err
	}
	programs := []pinned{network}
	if needs.HostPath {
		programs = append(programs, hostPath)
	}
	for _, p := range programs {
		if err := p.build(ctx, source, h.bin); err != nil {
			return cause(ctx, err)
		}
	}
	if err := r.build(ctx, source, h.bin); err != nil {
		return cause(ctx, err)
	}
	return cause(ctx, buildImages(ctx, source, h.bin))
}

// newHarness locks the work folder, and clears the nodes that a killed harness may
// have left.
func newHarness(ctx context.Context, work string) (*Harness, error) {
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, fmt.Errorf("--work %s: %w", work, err)
	}
	// The kernel lists mounts, which clear looks for, by their real paths.
	if work, err = filepath.EvalSymlinks(work); err != nil {
		return nil, fmt.Errorf("--work: %w", err)
	}
	longest := filepath.Join(work, runPrefix+"0000000000", strconv.Itoa(MaxKubelets), "kubelet/pod-resources/kubelet.sock")
	if len(longest) > socketLimit {
		return nil, fmt.Errorf("--work %s: a socket below it would be %s, %d characters long; at most %d are possible",
			work, longest, len(longest), socketLimit)
	}
	h := &Harness{work: work, bin: filepath.Join(work, "bin")}
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
			return nil, fmt.Errorf("clearing an earlier run: %w", err)
		}
	}
	return h, nil
}

// Run makes a node in a new folder, by running this program with the arguments.
// After the end of the node or the context, it removes everything. It keeps the
// logs if something failed.
func (h *Harness) Run(ctx context.Context, title string, sp Spec, out io.Writer, args ...string) (err error) {
	if err := h.takeMachine(ctx); err != nil {
		return err
	}
	defer h.leaveMachine()
	dir, err := os.MkdirTemp(h.work, runPrefix)
	if err != nil {
		return err
	}
	sp.ID, sp.Dir, sp.Bin, sp.Etcd = filepath.Base(dir), dir, h.bin, h.etcd
	sp.Logs = filepath.Join(h.work, "logs", sp.ID+"-"+strings.ReplaceAll(title, ", ", "-"))
	if err := os.MkdirAll(sp.Logs, 0o755); err != nil {
		return err
	}
	defer func() {
		if !sp.Machine {
			err = errors.Join(err, h.clear(dir))
		}
		switch {
		case ctx.Err() != nil && !h.Keep, err == nil && !h.Keep:
			err = errors.Join(err, os.RemoveAll(sp.Logs))
			// This fails while the folder has other logs, which must stay.
			_ = os.Remove(filepath.Dir(sp.Logs))
		default:
			Progress("%s: logs are in %s", title, sp.Logs)
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

// takeMachine waits until no other harness has a node on this machine, even in
// another work folder. Two nodes would share the processors that they measure, and
// the folders of createFixedPaths: when one harness removes such a folder, the
// other loses its mount on it. The lock is an abstract socket, which the kernel
// removes with the process.
func (h *Harness) takeMachine(ctx context.Context) (err error) {
	said := false
	for h.machine == nil {
		if h.machine, err = net.Listen("unix", "@kubelet-backoff-node"); err == nil {
			break
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		if !said {
			Progress("waiting until another harness on this machine ends")
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

func (h *Harness) leaveMachine() {
	h.machine.Close()
	h.machine = nil
}

// Check returns an error if processes, mounts or cgroups of nodes are left.
func (h *Harness) Check(w io.Writer) error {
	// The prefix is not just the work folder, because the arguments of the harness's
	// parent also contain that.
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
