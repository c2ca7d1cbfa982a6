// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package shim is what the agent's executable is when it is started once more:
// the parent of containers. It imports little, so that its init runs before those
// of nearly all other packages: with them it takes four times the CPU time.
package shim

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Name is the first argument of a shim, by which it knows what it is. It is no
// environment variable, because those would be the container's too.
const Name = "crashloop-shim"

// Control is the file of a parent that is a socket of packets.
const Control = 3

// Parent is what the parent of containers is to know. It stands in its arguments.
type Parent struct {
	// Title shows in lists of processes.
	Title string
	// Confined is for a parent with namespaces of its own, of which it is to make
	// the container's. Without them it is the parent of one container alone.
	Confined bool
	// Hostname is that of the pod.
	Hostname string
	// Volumes is the folder of the pod's volumes, or "".
	Volumes string
	// MountPoints are the paths of all mounts of the pod. One that ends with a slash
	// is a folder.
	MountPoints []string
}

// Args are the arguments of the process.
func (p Parent) Args() []string {
	return append([]string{Name, p.Title, strconv.FormatBool(p.Confined), p.Hostname, p.Volumes}, p.MountPoints...)
}

// Command is what the first process of a container executes, or another one in it.
type Command struct {
	Args, Env []string
	// Path is where Args[0] is looked for.
	Path string
	// Dir is the working directory, and OrDir what it is where Dir is "" and OrDir is
	// there.
	Dir, OrDir string
	// User is nil without confinement.
	User *User
	// Mounts have the shorter of two targets first.
	Mounts []Mount
	// ReadOnlyTmp is for a /tmp that cannot be written to.
	ReadOnlyTmp bool
}

// User is who a command runs as.
type User struct {
	// UID and GID are -1 for those of the agent.
	UID, GID int
	Groups   []int
	// Root reports whether the agent is root: there is no user namespace then.
	Root bool
	// Capabilities is the set of those that the user 0 has.
	Capabilities uint64
}

// Mount is a volume in a container.
type Mount struct {
	// Source is the volume's name, and what is below it in the volume.
	Source   string
	Target   string
	ReadOnly bool
}

// init is a whole program, if the process was started for that.
func init() {
	if len(os.Args) < 5 || os.Args[0] != Name {
		return
	}
	runtime.LockOSThread() // With this thread what it started would end.
	confined, _ := strconv.ParseBool(os.Args[2])
	Parent{Title: os.Args[1], Confined: confined, Hostname: os.Args[3], Volumes: os.Args[4], MountPoints: os.Args[5:]}.run()
	unix.Exit(0) // os.Exit takes a second with the race detector.
}
