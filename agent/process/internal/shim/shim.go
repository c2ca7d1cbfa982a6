// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package shim is the parent process of containers: the agent's executable, started
// again. The package imports little, so that its init runs before those of nearly all
// other packages, which would take four times the CPU time.
package shim

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Name is argument 0 of a shim, by which init recognizes it. An environment variable
// would be passed on to containers.
const Name = "crashloop-shim"

// Control is the file descriptor of the parent's socket to the agent.
const Control = 3

// Parent configures a parent of containers. It is passed as arguments.
type Parent struct {
	// Title is for lists of processes.
	Title string
	// Confined is true for a parent in new namespaces, whose containers get namespaces
	// too. Otherwise the parent has one container at a time, always the same one: its
	// thread keeps the restrictions of a Command.
	Confined bool
	// Hostname is the hostname of the pod.
	Hostname string
	// Volumes is the folder of the pod's volumes, or "".
	Volumes string
	// MountPoints has the paths of all mounts of the pod. A path that ends with a slash
	// is a folder.
	MountPoints []string
}

// Args returns the arguments of the process.
func (p Parent) Args() []string {
	return append([]string{Name, p.Title, strconv.FormatBool(p.Confined), p.Hostname, p.Volumes}, p.MountPoints...)
}

// Command is the first command of a container, or another one in it.
type Command struct {
	Args, Env []string
	// Path is the PATH in which Args[0] is looked up.
	Path string
	// Dir is the working directory. If it is "", OrDir is, or / if OrDir does not
	// exist.
	Dir, OrDir string
	// User is nil for the user of the agent with all its capabilities.
	User *User
	// Mounts is sorted by the length of the target.
	Mounts []Mount
	// ReadOnlyTmp makes /tmp read-only.
	ReadOnlyTmp bool
}

// User is the user of a command.
type User struct {
	// UID, GID and Groups are used only if Root is true.
	UID, GID int
	Groups   []int
	// Root reports whether the agent is root. Then there is no user namespace.
	Root bool
	// Capabilities is the set of capabilities that root has, as bits.
	Capabilities uint64
}

// Mount is a volume mount of a container.
type Mount struct {
	// Source is the name of the volume and the path in it.
	Source   string
	Target   string
	ReadOnly bool
}

// init runs the shim and exits, if this process is one.
func init() {
	if len(os.Args) < 5 || os.Args[0] != Name {
		return
	}
	runtime.LockOSThread() // Pdeathsig is sent at the end of the thread.
	confined, _ := strconv.ParseBool(os.Args[2])
	Parent{Title: os.Args[1], Confined: confined, Hostname: os.Args[3], Volumes: os.Args[4], MountPoints: os.Args[5:]}.run()
	unix.Exit(0) // os.Exit takes a second with the race detector.
}
