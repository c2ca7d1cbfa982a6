// SPDX-License-Identifier: Apache-2.0

// Package process is the runtime of package agent in which each container is a
// process on this machine, with all that it starts. It needs Linux and no
// privileges, and a program that uses it calls [Shim] first of all.
//
// Each container has a parent of its own, the shim, which is the agent's
// executable started once more. The shim adopts what loses its parent among the
// container's processes (PR_SET_CHILD_SUBREAPER), and so nothing that a
// container starts gets away, in whatever session it puts itself. When the first
// process ends, the shim kills all others, as the kernel does in a container. A
// pipe from the agent to the shim is open as long as the agent lives; at its end
// the shim kills the first process, whatever it was that ended the agent. It passes
// on SIGTERM if the first process handles that, for without a handler it has no
// effect on the first process of a container. The
// shim is in a session of its own, so that Ctrl-C is for the agent alone. A
// command for Exec has a shim too.
//
// It differs from a container in what a process shares with its user: the file
// system, the network, the users and the process IDs are those of the machine,
// nothing limits its memory, and images do not matter. A command is looked for
// in the container's PATH or else in the agent's, and runs in the agent's folder
// where workingDir is not set. As nothing can be mounted, the path of a volume's
// mount is replaced by that of the volume's folder where a path begins with it in
// command, args, env, workingDir and commands for Exec; not so where a program
// finds it in a file or puts it together itself. What Exec leaves
// running ends with the command and not with the container. Programs get no
// privileges by being executed (sudo, ping), or else the shim could not end
// them. What kills the shim ends the first process, but not what that started.
// A process that somebody else starts for the container, such as a daemon of
// containers, is not the container's.
package process

import "github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"

// LogsDir is the folder within a pod's folder that has the logs, a folder for each
// container.
const LogsDir = podfiles.Logs
