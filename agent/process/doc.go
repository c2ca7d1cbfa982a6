// SPDX-License-Identifier: Apache-2.0

// Package process is the runtime of package agent in which each container is a
// process on this machine, with all that it starts. It needs Linux and no
// privileges.
//
// A pod is confined: it has PID, mount, IPC and UTS namespaces of its own, and a
// user namespace if the agent is not root. The parent of its containers is the
// agent's executable started once more, of which an init of this package then does
// not return. It is the first process of the pod's PID namespace. Each container is
// in one below that, and its command is the first process there. So the kernel does
// what it does in a container: a signal for which the command has no handler passes
// it over, and with it all others end. With the parent the whole pod ends, and the
// parent ends with the agent, by whatever that was ended. It is in a session of its
// own, so that Ctrl-C is for the agent alone.
//
// A container sees the files of the machine, read-only, in a root that is in
// memory, so that a volume can be mounted where the machine has no folder. /tmp is
// its own, and new with each instance; /dev has no disks, and /dev/shm is the
// pod's. A link in a subPath does not lead out of its volume. readOnly,
// readOnlyRootFilesystem, which is then that of /tmp, runAsUser, runAsGroup and
// capabilities are honoured, and supplementalGroups and fsGroup if the agent is root.
// If it is not, the pod's one user and group stand for those of the agent, and
// Validate refuses a pod that has several. Programs get no privileges by being
// executed (sudo, ping).
//
// It differs from a container in what it shares with its user: the network is that
// of the machine, with what listens there and on sockets in files; files that its
// user may read can be read; nothing limits its memory, and images do not matter. A
// command is looked for in the container's PATH or else in the agent's, and runs
// in the agent's folder, or in / if that is in /tmp, where workingDir is not set.
//
// Without confinement, for which CanConfine may say why, nothing is mounted and
// a container may do what its user may. Each one has a parent of its own, which adopts
// what loses its parent among its processes (PR_SET_CHILD_SUBREAPER) and ends it
// when the first one has ended, or the agent. What kills the parent ends the first
// process, but not what that started. SIGTERM ends a first process without a handler.
package process

import "github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"

// LogsDir is the folder within a pod's folder that has the logs, a folder for each
// container.
const LogsDir = podfiles.Logs
