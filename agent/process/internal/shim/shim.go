// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package shim implements the parent process of containers, which is the agent's
// executable, started again. The package imports few packages, so that its init function
// runs before most others: to run them all would take four times the CPU time.
package shim

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Name is argument 0 of a shim: init recognizes the shim by it. An environment variable
// would be inherited by containers.
const Name = "crashloop-shim"

// Control is the file descriptor of the parent's socket to the agent.
const Control = 3

// Parent configures a parent of containers. The arguments of its process are made from it.
type Parent struct {
	// Title is shown in lists of processes.
	Title string
	// Confined is true for a parent in new namespaces, whose containers get their own
	// namespaces too. Otherwise the parent only runs instances of one container, because
	// its thread keeps the restrictions of a Command.
	Confined bool
	// Hostname is the hostname of the pod.
	Hostname string
	// Volumes is the directory of the pod's volumes, or "".
	Volumes string
	// MountPoints lists the paths of all mounts of the pod. A path that ends with a slash
	// is a directory.
	MountPoints []string
}

// Args returns the arguments of the process.
func (p Parent) Args() []string {
	return append([]string{Name, p.Title, strconv.FormatBool(p.Confined), p.Hostname, p.Volumes}, p.MountPoints...)
}

// Command is the first command of a container, or a later command in it.
type Command struct {
	Args, Env []string
	// Path is the PATH in which Args[0] is looked up.
	Path string
	// Dir is the working directory. If it is "", OrDir is the working directory, or / if
	// OrDir does not exist.
	Dir, OrDir string
	// User is nil for the user of the agent with all its capabilities.
	User *User
	// Mounts are sorted by the length of the target.
	Mounts []Mount
	// ReadOnlyTmp makes /tmp read-only.
	ReadOnlyTmp bool
}

// User is the user of a command.
type User struct {
	// UID, GID and Groups are used only if Root is true.
	UID, GID int
	Groups   []int
	// Root is true if the agent is root. Then there is no user namespace.
	Root bool
	// Capabilities is the bit set of the capabilities of root.
	Capabilities uint64
}

// Mount is a volume mount of a container.
type Mount struct {
	// Source is the name of the volume, followed by a slash and the path in the volume.
	Source   string
	Target   string
	ReadOnly bool
}

// init runs the shim and exits, if this process is one.
func init() {
	if len(os.Args) < 5 || os.Args[0] != Name {
		return
	}
	runtime.LockOSThread() // Pdeathsig is sent when the thread ends.
	confined, _ := strconv.ParseBool(os.Args[2])
	Parent{Title: os.Args[1], Confined: confined, Hostname: os.Args[3], Volumes: os.Args[4], MountPoints: os.Args[5:]}.run()
	unix.Exit(0) // os.Exit takes a second with the race detector.
}
