// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// fixedPaths are folders outside the node's folder that the kubelet and the runtime
// write to, and that no option moves. In the node's mount namespace, a folder of the node
// is mounted on each of them. A mount needs an existing folder, so the harness
// creates missing ones on the host and removes them again.
var fixedPaths = []string{
	"/var/lib/kubelet",    // sockets of device plugins
	"/var/lib/cni",        // results of network plugins
	"/var/log/containers", // links to the logs of containers
	"/run/containerd",     // containerd: sockets of shims, state of runc
	crioState,             // CRI-O: its whole state
	"/var/lib/containers", // CRI-O: a cache
}

// tunables are the kernel settings that a kubelet adjusts when it starts. They
// affect the whole machine, so a node that shares it gets copies of the files instead.
var tunables = []string{
	"/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/panic_on_oom",
	"/proc/sys/kernel/panic",
	"/proc/sys/kernel/panic_on_oops",
	"/proc/sys/kernel/keys/root_maxkeys",
	"/proc/sys/kernel/keys/root_maxbytes",
}

// secludeMounts makes the mounts of a node. A node calls it first.
func (n *Node) secludeMounts() error {
	// This comes first, so that the host does not see the node's mounts.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the node's mounts private: %w", err)
	}
	if !n.Spec.Machine {
		if err := n.secludeProc(); err != nil {
			return err
		}
	}
	for _, path := range fixedPaths {
		own := n.Path("fixed", path)
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := bind(own, path); err != nil {
			return err
		}
	}
	// A kubelet looks up its own name, a standalone one often. Without a name server, each
	// lookup would take seconds.
	hosts := "127.0.0.1 localhost " + Name + "\n"
	for i := range MaxKubelets {
		hosts += "127.0.0.1 " + KubeletName(i) + "\n"
	}
	return n.Replace("/etc/hosts", []byte(hosts))
}

// secludeProc gives the node its own /proc, with copies of the tunables. With mounts in
// /proc, the kernel lets no user namespace mount another /proc.
func (n *Node) secludeProc() error {
	// The host's /proc would not show the processes of the node's PID namespace.
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, path := range tunables {
		value, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := n.Replace(path, value); err != nil {
			return err
		}
	}
	return nil
}

// Replace mounts a file of the node over one of the host.
func (n *Node) Replace(path string, content []byte) error {
	own := n.Path("fixed", path)
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(own, content, 0o644); err != nil {
		return err
	}
	return bind(own, path)
}

func bind(from, to string) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", from, to, err)
	}
	return nil
}

// overlays reports whether overlayfs works in a folder. It does not on another
// overlayfs, which is the file system of a container.
func overlays(dir string) bool {
	const overlayMagic = 0x794c7630
	var fs syscall.Statfs_t
	return syscall.Statfs(dir, &fs) != nil || fs.Type != overlayMagic
}

// mount is a line of /proc/self/mountinfo.
type mount struct{ root, point, fstype string }

func mounts() ([]mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(data), nil
}

func parseMounts(data []byte) []mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var all []mount
	for line := range bytes.Lines(data) {
		// A single hyphen ends the optional fields; the type follows it.
		before, after, found := strings.Cut(string(line), " - ")
		f, rest := strings.Fields(before), strings.Fields(after)
		if !found || len(f) < 5 || len(rest) == 0 {
			continue
		}
		all = append(all, mount{root: unescape.Replace(f[3]), point: unescape.Replace(f[4]), fstype: rest[0]})
	}
	return all
}
