// SPDX-License-Identifier: Apache-2.0

// Package process is a runtime for package agent that runs each container as a process
// on this machine. It needs Linux, but no privileges and no images.
//
// # Confined pods
//
// A confined pod has its own PID, mount, IPC and UTS namespaces, and its own user
// namespace if the agent is not root. Its containers share a parent process: the agent's
// executable, started again, in which an init function of this module takes over. The
// parent is PID 1 of the pod. Each container has its own PID namespace in the pod's, with
// its command as PID 1. So, as in other container runtimes, the command does not get
// signals for which it has no handler, and its end kills all processes of the container.
// The end of the parent kills the pod, and the end of the agent, for whatever reason,
// ends the parent. The parent has its own session, so Ctrl-C reaches only the agent.
//
// A container sees the files of the machine read-only. The root directory is a copy in
// memory, so volumes can be mounted on paths that do not exist on the machine. Every
// instance has its own empty /tmp. /dev has no disks, and the pod shares /dev/shm. A
// symbolic link in a subPath cannot lead out of its volume. The runtime supports readOnly,
// readOnlyRootFilesystem (for /tmp; the rest is always read-only), runAsUser, runAsGroup
// and capabilities, and supplementalGroups and fsGroup if the agent is root. If the agent
// is not root, the user and group of the pod are mapped to those of the agent, and
// Validate rejects a pod with several users. Programs cannot gain privileges (sudo, ping).
//
// Some things are not isolated: a container uses the network and the Unix sockets of the
// machine, and can read all readable files. Its memory is not limited, and its image is
// ignored. A command is looked up in the PATH of the container or, if it has none, of the
// agent. Without a workingDir it runs in the working directory of the agent, or in / if
// that is below /tmp.
//
// # Unconfined pods
//
// If CanConfine returns an error, a pod can run unconfined. Then nothing is mounted, and
// a container can do whatever its user can do. Each container has its own parent, which
// adopts orphaned processes (PR_SET_CHILD_SUBREAPER) and kills them when the command or
// the agent ends. If the parent itself is killed, the command ends, but the processes that
// it started do not. SIGTERM ends a command that has no handler for it.
package process

import "github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"

// LogsDir is the directory for logs in the directory of a pod. It has a directory for each
// container.
const LogsDir = podfiles.Logs
