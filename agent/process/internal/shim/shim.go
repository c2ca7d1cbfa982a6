// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package shim implements the parent process of containers, which is the agent's
// executable, started again. The package imports few packages, so that its init function
// runs before most others: to run them all would take four times the CPU time.
package shim

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Control is the file descriptor of the parent's socket to the agent.
const Control = 3

// Parent configures a parent of containers. The arguments of its process are made from it.
type Parent struct {
	// Title is shown in lists of processes.
	Title string
	// Bwrap is the path of bwrap for a parent in the sandbox of a Pod, whose containers get
	// their own sandboxes. If it is "", the parent only runs instances of one container.
	Bwrap string
}

// Args returns the arguments of the process.
func (p Parent) Args() []string { return []string{Name, p.Title, p.Bwrap} }

// Command is the first command of a container, or a later command in it.
type Command struct {
	Args, Env []string
	// Path is the PATH in which Args[0] is looked up.
	Path string
	// Dir is the working directory. Without a sandbox it may be "" or relative to the
	// working directory of the agent.
	Dir string
	// User is nil for the user of the agent, and in a sandbox.
	User *User
	// Container is nil without a sandbox.
	Container *Container
}

// User is the user of a command.
type User struct {
	UID, GID int
	Groups   []int
}

// init runs the shim and exits, if this process is one.
func init() {
	if len(os.Args) != 3 || os.Args[0] != Name {
		return
	}
	runtime.LockOSThread() // Pdeathsig is sent when the thread ends.
	Parent{Title: os.Args[1], Bwrap: os.Args[2]}.run()
	unix.Exit(0) // os.Exit takes a second with the race detector.
}
