// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// crio is the runtime CRI-O, with conmon and crun or runc.
type crio struct {
	// oci is the name of the program that starts containers.
	oci string
}

const crioModule = "github.com/cri-o/cri-o"

// crioPrograms are built without cgo, and so without libseccomp and gpgme: these nodes
// use neither seccomp profiles nor signatures.
var crioPrograms = pinned{
	name: "CRI-O", folder: "crio", tags: "containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_zfs",
	programs: []string{crioModule + "/cmd/crio"},
}

func (crio) build(ctx context.Context, source, bin string) error {
	if err := crioPrograms.build(ctx, source, bin); err != nil {
		return err
	}
	// This makes the namespaces of pods. It is so small that it is always built.
	dir, err := buildCommand(ctx, filepath.Join(source, crioPrograms.folder), "go", "list", "-m", "-f={{.Dir}}", crioModule)
	if err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "pinns", "src", "*.c"))
	if err != nil {
		return err
	}
	_, err = buildCommand(ctx, bin, "gcc", slices.Concat([]string{"-O2", "-static", "-o", filepath.Join(bin, "pinns")}, sources)...)
	return err
}

func (c crio) needs(built bool) map[string]string {
	needed := map[string]string{c.oci: c.oci, "conmon": "conmon", "skopeo": "skopeo"}
	if !built {
		needed["gcc"] = "gcc libc6-dev"
	}
	return needed
}

// crioState is the folder for everything that a reboot empties. It is short because it
// has sockets.
const crioState = "/run/crio"

// crioRegistries lets tests serve images without TLS. That the location stands for all its
// ports too is not documented.
const crioRegistries = `[[registry]]
location = "127.0.0.1"
insecure = true
`

// crioConfig has no path that another CRI-O on the machine may use. The log has each
// request and its answer. By default CRI-O sends no events.
const crioConfig = `[crio]
root = %[1]q
runroot = "%[2]s/storage"
storage_driver = %[3]q
log_dir = "%[1]s/logs"
version_file = "%[2]s/version"
clean_shutdown_file = "%[1]s/clean.shutdown"

[crio.api]
listen = %[4]q

[crio.image]
pause_image = %[5]q
signature_policy = %[6]q
signature_policy_dir = "%[1]s/policies"
namespaced_auth_dir = "%[1]s/auth"
big_files_temporary_dir = %[1]q

[crio.network]
network_dir = %[7]q
plugin_dirs = [%[8]q, %[7]q]

[crio.nri]
enable_nri = false

[crio.runtime]
log_level = "debug"
pids_limit = 4096
default_runtime = %[9]q
cgroup_manager = %[10]q
pinns_path = "%[8]s/pinns"
namespaces_dir = "%[2]s/namespaces"
container_exits_dir = "%[2]s/exits"
container_attach_socket_dir = %[2]q
hooks_dir = []
cdi_spec_dirs = [%[7]q]
irqbalance_config_restore_file = "disable"
disable_hostport_mapping = true
enable_pod_events = true

[crio.runtime.runtimes.%[9]s]
runtime_path = %[11]q
runtime_root = "%[2]s/%[9]s"
monitor_path = %[12]q
monitor_cgroup = %[13]q
`

// crunWrapper is for the crun of Debian 12. It accepts only version 1.0 of the runtime
// specification, and CRI-O claims a newer one, of which these nodes use nothing. With
// cgroup v1 it also needs the controller of huge pages for the kubelet's limits of 0.
const crunWrapper = `#!/bin/sh
previous=
for argument; do
  [ "$previous" != --bundle ] || sed -i -z 's/"ociVersion": *"[^"]*"/"ociVersion":"1.0.2"/
    s/"hugepageLimits": *\[[^]]*\]/"hugepageLimits":[]/' "$argument/config.json"
  previous=$argument
done
exec %s "$@"
`

func (c crio) configure(n *Node, cni string) ([]string, error) {
	root, policy, config, registries := n.Path("crio"), n.Path("policy.json"), n.Path("crio.conf"), n.Path("registries.conf")
	empty := filepath.Join(root, "conf.d")
	if err := os.MkdirAll(empty, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(policy, []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`), 0o644); err != nil {
		return nil, err
	}
	manager, monitor := "cgroupfs", ""
	if n.Spec.Machine {
		manager, monitor = "systemd", "system.slice"
	}
	oci, err := exec.LookPath(c.oci)
	if err != nil {
		return nil, err
	}
	if c.oci == "crun" {
		if err := hideUnified(); err != nil {
			return nil, err
		}
		wrapper := n.Path("crun")
		if err := os.WriteFile(wrapper, fmt.Appendf(nil, crunWrapper, oci), 0o755); err != nil {
			return nil, err
		}
		oci = wrapper
	}
	conmon, err := exec.LookPath("conmon")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(registries, []byte(crioRegistries), 0o644); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(crioConfig, root, crioState, crioDriver(n), n.RuntimeSocket(), pauseImage, policy, cni, n.Spec.Bin, c.oci, manager, oci, conmon, monitor)
	return []string{filepath.Join(n.Spec.Bin, "crio"), "--config", config, "--config-dir", empty, "--registries-conf", registries, "--registries-conf-dir", empty},
		os.WriteFile(config, []byte(text), 0o644)
}

// hideUnified unmounts cgroup v2 in the node's mount namespace if the machine also has
// cgroup v1: crun refuses such machines.
func hideUnified() error {
	all, err := mounts()
	if err != nil || !slices.ContainsFunc(all, func(m mount) bool { return m.fstype == "cgroup" }) {
		return err
	}
	for _, m := range all {
		if m.fstype == "cgroup2" {
			if err := syscall.Unmount(m.point, syscall.MNT_DETACH); err != nil {
				return fmt.Errorf("unmounting %s: %w", m.point, err)
			}
		}
	}
	return nil
}

// crioDriver is the name of the storage driver.
func crioDriver(n *Node) string {
	if overlays(n.Spec.Dir) {
		return "overlay"
	}
	return "vfs"
}

// CRI-O itself loads images only from registries.
func (crio) load(n *Node, image Image, reference string) error {
	_, err := Output(n.ctx, "skopeo", "--insecure-policy", "--tmpdir", n.Spec.Dir, "copy", "docker-archive:"+image.archive(n.Spec.Bin),
		fmt.Sprintf("containers-storage:[%s@%s+%s/storage]%s", crioDriver(n), n.Path("crio"), crioState, reference))
	return err
}

func (crio) state(string) []string { return []string{crioState} }

// With cgroup v1, CRI-O leaves those of containers and sandboxes that it has removed.
func (crio) cgroups(id string) []string {
	return []string{"crio/crio-" + id, "crio-" + id, "crio-conmon-" + id}
}
