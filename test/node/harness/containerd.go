// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// containerdNamespace is the namespace of the kubelet's containers in containerd.
const containerdNamespace = "k8s.io"

// containerd is the runtime of that name, with runc.
type containerd struct{}

var containerdPrograms = pinned{name: "containerd", folder: "containerd", tags: "no_btrfs no_devmapper no_zfs", programs: []string{
	"github.com/containerd/containerd/v2/cmd/containerd",
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
	"github.com/containerd/containerd/v2/cmd/ctr",
}}

func (containerd) build(ctx context.Context, source, bin string) error {
	return containerdPrograms.build(ctx, source, bin)
}

func (containerd) needs(bool) map[string]string { return map[string]string{"runc": "runc"} }

// containerdConfig disables plugins that would write outside the node's folder (opt
// and NRI) or that the node does not need. Lowering the OOM score needs
// CAP_SYS_RESOURCE, which not every machine grants. Without it runc fails with a
// misleading message, so the adjustment is always restricted.
const containerdConfig = `version = 3
root = %[1]q
state = %[2]q
disabled_plugins = [
  'io.containerd.internal.v1.opt',
  'io.containerd.nri.v1.nri',
  'io.containerd.internal.v1.tracing',
  'io.containerd.tracing.processor.v1.otlp',
]

[grpc]
  address = %[3]q

[plugins.'io.containerd.cri.v1.images']
  snapshotter = %[6]q
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[4]q

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  cdi_spec_dirs = [%[5]q]
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[7]q, %[5]q]
    conf_dir = %[5]q
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = %[9]q
      SystemdCgroup = %[8]v
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]
      BinaryName = 'crun'
      SystemdCgroup = %[8]v

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'
`

// machineTimeouts let containerd wait longer for its shims. On an emulated machine some answer after the usual two to five
// seconds when containerd starts, and it would take their containers for lost.
const machineTimeouts = `
[timeouts]
  'io.containerd.timeout.shim.cleanup' = '2m'
  'io.containerd.timeout.shim.load' = '2m'
  'io.containerd.timeout.task.state' = '2m'
`

func (containerd) configure(n *Node, cni string) ([]string, error) {
	root, state := n.Path("containerd", "root"), containerdState(n.Spec.Dir)
	for _, dir := range []string{root, state} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	snapshotter := "native"
	if overlays(n.Spec.Dir) {
		snapshotter = "overlayfs"
	}
	runc := "runc"
	if n.Spec.Machine {
		var err error
		if runc, err = sealedRunc(); err != nil {
			return nil, err
		}
	}
	config := n.Path("containerd", "config.toml")
	text := fmt.Sprintf(containerdConfig, root, state, n.RuntimeSocket(), pauseImage, cni, snapshotter, n.Spec.Bin, n.Spec.Machine, runc)
	if n.Spec.Machine {
		text += machineTimeouts
	}
	return []string{filepath.Join(n.Spec.Bin, "containerd"), "--config", config}, os.WriteFile(config, []byte(text), 0o644)
}

// sealedRunc returns the path of a copy of runc in sealed memory. It lasts as long as this process.
// runc 1.1 makes such a copy for each container and each exec, unless it runs from one. For
// QEMU without KVM that is new code each time, and half of the CPU time of a start.
var sealedRunc = sync.OnceValues(func() (string, error) {
	path, err := exec.LookPath("runc")
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	// An os.File would close it when it is collected.
	fd, err := unix.MemfdCreate("runc", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return "", os.NewSyscallError("memfd_create", err)
	}
	sealed := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	if err := os.WriteFile(sealed, program, 0); err != nil {
		return "", err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	return sealed, os.NewSyscallError("fcntl", err)
})

func (containerd) load(n *Node, image Image, reference string) error {
	args := []string{"import", image.archive(n.Spec.Bin)}
	if reference != image.Reference {
		args = []string{"tag", image.Reference, reference}
	}
	return n.ctrImages(args...)
}

// ctrImages runs a command on images of containerd's client.
func (n *Node) ctrImages(args ...string) error {
	_, err := Output(n.ctx, filepath.Join(n.Spec.Bin, "ctr"),
		append([]string{"--address", n.RuntimeSocket(), "--namespace", containerdNamespace, "images"}, args...)...)
	return err
}

func containerdState(dir string) string { return filepath.Join(dir, "containerd", "state") }

func (containerd) state(dir string) []string {
	return []string{containerdState(dir), "/run/containerd"}
}

// The kubelet runs without cgroups per QoS class, so containerd creates each cgroup
// below its namespace. A start that is cancelled, because the kubelet is killed,
// leaves one that only the log knows (containerd issue 11674).
func (containerd) cgroups(id string) []string {
	return []string{filepath.Join(containerdNamespace, id)}
}
