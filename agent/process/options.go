// SPDX-License-Identifier: Apache-2.0

package process

// The limits of a confined pod by default.
const (
	DefaultPIDsLimit   = 1024
	DefaultMemoryLimit = 2 << 30
)

// Options say how the containers of a pod run. The zero value is a confined pod with the
// default limits and a network of its own.
type Options struct {
	// Unconfined runs the containers without a sandbox. The other options have no effect
	// then.
	Unconfined bool
	// HostNetwork gives the pod the network of the machine, with the abstract sockets on
	// it. Otherwise it has a loopback interface only.
	HostNetwork bool
	// HostDirs are directories of the machine that the containers see, read-only, such as
	// that of a program. A container can use their FIFOs and sockets.
	HostDirs []string
	// PIDsLimit is the number of processes and threads that the pod may have, including the
	// few of the sandbox. 0 is DefaultPIDsLimit, a negative number no limit.
	PIDsLimit int64
	// MemoryLimit is the number of bytes that the pod may use. If the agent may not make
	// cgroups, it is the number that each process may allocate. Half of it may be files in
	// memory, such as in /tmp. 0 is DefaultMemoryLimit, a negative number no limit.
	MemoryLimit int64
}
