// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// containerdNamespace is the namespace of the kubelet's containers in containerd.
const containerdNamespace = "k8s.io"

// containerdPrograms are the programs to build from the module in the folder
// containerd: containerd and the network plugins of pods.
var containerdPrograms = []string{
	"github.com/containerd/containerd/v2/cmd/containerd",
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
	"github.com/containerd/containerd/v2/cmd/ctr",
	"github.com/containernetworking/plugins/plugins/ipam/host-local",
	"github.com/containernetworking/plugins/plugins/main/bridge",
	"github.com/containernetworking/plugins/plugins/main/loopback",
}

// buildContainerd builds the version that containerd/go.mod pins into bin, unless
// bin already has it.
func buildContainerd(ctx context.Context, source, bin string) error {
	module := filepath.Join(source, "containerd")
	stamp, err := containerdStamp(module)
	if err != nil {
		return err
	}
	stampFile := filepath.Join(bin, "containerd.stamp")
	if have, err := os.ReadFile(stampFile); err == nil && string(have) == stamp {
		complete := true
		for _, p := range containerdPrograms {
			if _, err := os.Stat(filepath.Join(bin, path.Base(p))); err != nil {
				complete = false
			}
		}
		if complete {
			return nil
		}
	}
	Progress("building containerd (only once, one to three minutes)")
	args := []string{"build", "-trimpath", "-tags", "no_btrfs no_devmapper no_zfs", "-o", bin + "/"}
	args = append(args, containerdPrograms...)
	if err := goCommand(ctx, module, args...); err != nil {
		return fmt.Errorf("building containerd: %w", err)
	}
	return os.WriteFile(stampFile, []byte(stamp), 0o644)
}

// containerdStamp returns a string that changes with everything that would change
// the binaries.
func containerdStamp(module string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version())
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("finding containerd's version: %w", err)
		}
		h.Write(data)
	}
	return fmt.Sprintf("%x\n", h.Sum(nil)), nil
}

// goCommand runs the go command in a module, without cgo so that the programs also
// run in containers. An interrupted go command would leave its compilers and its
// temporary folder behind, so it runs in a process group and a folder of its own.
func goCommand(ctx context.Context, module string, args ...string) (err error) {
	tmp, err := os.MkdirTemp("", "kubelet-backoff-build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOTMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, out)
	}
	return nil
}

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
      SystemdCgroup = %[8]v

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'
`

// StartContainerd starts containerd and imports the images.
func (n *Node) StartContainerd() (err error) {
	root, state, cni := n.Path("containerd", "root"), containerdState(n.Spec.Dir), n.cni()
	for _, dir := range []string{root, state, cni} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	config := n.Path("containerd", "config.toml")
	text := fmt.Sprintf(containerdConfig, root, state, n.RuntimeSocket(), pauseImage, cni, snapshotter(n.Spec.Dir), n.Spec.Bin, n.Spec.Machine)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	// containerd looks for its shim on PATH.
	if err := os.Setenv("PATH", n.Spec.Bin+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return err
	}
	if n.Spec.Network {
		_, _, err = n.SetUpNetwork()
	} else {
		err = os.WriteFile(filepath.Join(cni, "unused.conflist"), []byte(unusedNetwork), 0o644)
	}
	if err != nil {
		return err
	}
	if err := n.RunContainerd(); err != nil {
		return err
	}
	for _, image := range images {
		if err := n.Import(image); err != nil {
			return err
		}
	}
	return nil
}

// RunContainerd starts or restarts containerd, and returns when it answers.
func (n *Node) RunContainerd() (err error) {
	config := n.Path("containerd", "config.toml")
	if n.Containerd, err = n.Start("containerd", filepath.Join(n.Spec.Bin, "containerd"), "--config", config); err != nil {
		return err
	}
	return Await(n.ctx, "an answer of containerd", time.Minute, func(ctx context.Context) error {
		_, err := n.Ctr(ctx, "version")
		return err
	})
}

// Ctr runs containerd's client.
func (n *Node) Ctr(ctx context.Context, args ...string) (string, error) {
	return Output(ctx, filepath.Join(n.Spec.Bin, "ctr"),
		append([]string{"--address", n.RuntimeSocket(), "--namespace", containerdNamespace}, args...)...)
}

func containerdState(dir string) string { return filepath.Join(dir, "containerd", "state") }
