// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// What the parent of a confined pod has in its own /dev/shm, which nothing else sees.
const (
	private = "/dev/shm"
	// Name is the path of the shim, and its argument 0, by which init recognizes it. An
	// environment variable would be inherited by containers.
	Name = private + "/crashloop"
	// hiddenBwrap is a copy of bwrap, see hide.
	hiddenBwrap = private + "/bwrap"
	// volumesDir has the volumes of the pod. hostDirs with a number is a directory of the
	// machine that its containers see.
	volumesDir = private + "/volumes"
	hostDirs   = private + "/dir"
	// sharedDir is the /dev/shm of all containers, and each directory in tmpDir the /tmp of
	// one instance.
	sharedDir = private + "/shm"
	tmpDir    = private + "/tmp"
)

// Nobody is the user and the group of the machine as which confined pods run if the agent
// is root.
const Nobody = 65534

// Pod configures the sandbox of a confined pod.
type Pod struct {
	// Bwrap and Setpriv are the paths of these programs. Executable is that of the agent.
	Bwrap, Setpriv, Executable string
	// Root is true if the agent is root. Then the sandbox runs as Nobody.
	Root bool
	// Hostname is the hostname of the pod.
	Hostname string
	// Volumes is the directory of the pod's volumes, or "".
	Volumes string
	// HostDirs are the directories of the machine that HostDir refers to.
	HostDirs []string
	// HostNetwork gives the pod the network of the machine.
	HostNetwork bool
	// MemoryFiles is the limit of all files in memory in bytes, or 0.
	MemoryFiles int64
}

// HostDir returns where the parent sees one of the HostDirs.
func HostDir(n int) string { return hostDirs + strconv.Itoa(n) }

// Command returns the command that starts a parent in the sandbox of the pod. The sandbox
// has the namespaces that the containers of a pod share, and the parent as PID 1. For
// the parent the files of the machine are as for its user, but read-only: when bwrap makes
// a mount point in a volume of a container, it follows links there to the machine.
//
// If the agent is root, a first bwrap, which is root too, mounts what Nobody may not
// reach, such as the volumes in the home directory of root.
func (p Pod) Command(parent []string) []string {
	args := []string{p.Bwrap, "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--chdir", "/", "--perms", "1777"}
	if p.MemoryFiles > 0 {
		args = append(args, "--size", strconv.FormatInt(p.MemoryFiles, 10))
	}
	args = append(args, "--tmpfs", private, "--ro-bind", p.Executable, Name)
	if p.Volumes != "" {
		args = append(args, "--bind", p.Volumes, volumesDir)
	}
	for n, dir := range p.HostDirs {
		args = append(args, "--ro-bind", dir, HostDir(n))
	}
	if p.Root {
		nobody := strconv.Itoa(Nobody)
		args = append(args, "--bind", "/proc", "/proc", "--", p.Setpriv, "--reuid="+nobody, "--regid="+nobody, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
			"--", p.Bwrap, "--dev-bind", "/", "/", "--chdir", "/")
	}
	args = append(args, "--unshare-user", "--uid", "0", "--gid", "0", "--unshare-pid", "--as-pid-1", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		// The first is for ip_unprivileged_port_start. The kernel needs the second to map the user 0 into the user namespace of a container.
		"--cap-drop", "ALL", "--cap-add", "CAP_NET_ADMIN", "--cap-add", "CAP_SETFCAP", "--proc", "/proc")
	if p.Hostname != "" {
		args = append(args, "--hostname", p.Hostname)
	}
	if !p.HostNetwork {
		args = append(args, "--unshare-net")
	}
	return append(append(args, "--"), parent...)
}

// Container is the sandbox of a container, in that of its pod.
type Container struct {
	// Limits is the beginning of the command: what sets limits for bwrap, or nothing.
	Limits []string
	// UID and GID are what the container takes for its user and group.
	UID, GID int
	// Files are the options of bwrap that mount the files of the machine. Afterwards all
	// tmpfs in Mirrors become read-only.
	Files, Mirrors []string
	// Mounts are sorted by the length of the target.
	Mounts []Mount
	// ReadOnlyTmp makes /tmp read-only.
	ReadOnlyTmp bool
}

// Mount is a volume mount of a container.
type Mount struct {
	Volume   string
	SubPath  string
	Target   string
	ReadOnly bool
}

// onShm reports whether a path is /dev/shm or below it.
func onShm(target string) bool { return strings.HasPrefix(target+"/", private+"/") }

// options returns the options of bwrap for a container or a command in it, except those
// for its namespaces. tmp is the container's /tmp. subPaths are the file descriptors of
// mounts with a subPath.
func (c Command) options(tmp string, subPaths map[string]int) []string {
	s := c.Container
	args := []string{"--clearenv"} // A variable such as LD_PRELOAD must not affect bwrap.
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		args = append(args, "--setenv", name, value)
	}
	args = append(args, s.Files...)
	bind := func(from, to, suffix string, readOnly bool) {
		option := "--bind"
		if readOnly {
			option = "--ro-bind"
		}
		args = append(args, option+suffix, from, to)
	}
	bind(tmp, "/tmp", "", false)
	volumes := func(shm bool) {
		for _, m := range s.Mounts {
			if fd, ok := subPaths[m.Target]; onShm(m.Target) != shm {
			} else if ok {
				bind(strconv.Itoa(fd), m.Target, "-fd", m.ReadOnly)
			} else {
				bind(path.Join(volumesDir, m.Volume), m.Target, "", m.ReadOnly)
			}
		}
	}
	volumes(false)
	// Nothing can be mounted on these, whatever links the volumes have.
	args = append(args, "--proc", "/proc", "--dev", "/dev")
	bind(sharedDir, private, "", false)
	volumes(true)
	for _, dir := range append([]string{"/", "/dev"}, s.Mirrors...) {
		args = append(args, "--remount-ro", dir)
	}
	if s.ReadOnlyTmp && !slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Target == "/tmp" }) {
		args = append(args, "--remount-ro", "/tmp")
	}
	return append(args, "--cap-drop", "ALL", "--new-session", "--chdir", c.Dir)
}
