// SPDX-License-Identifier: Apache-2.0

// Package process is a runtime for package agent that runs each container as a process
// on this machine. It needs Linux, but no privileges and no images.
//
// # Confined pods
//
// A confined pod has PID, mount, IPC and UTS namespaces of its own, and a user namespace
// if the agent is not root. Its containers share a parent process: the agent's
// executable, started again, of which an init function in this module takes over. The
// parent is PID 1 of the pod. Each container has a PID namespace below that, with its
// command as PID 1. So, as in other container runtimes, the command does not get signals
// for which it has no handler, and its end kills all processes of the container. The end
// of the parent kills the pod, and the end of the agent, for whatever reason, ends the
// parent. The parent has its own session, so Ctrl-C reaches only the agent.
//
// A container sees the files of the machine read-only. The root folder is a copy in
// memory, so volumes can be mounted on paths that the machine does not have. Every
// instance has its own empty /tmp. /dev has no disks, and the pod shares /dev/shm. A link
// in a subPath cannot lead out of its volume. The runtime supports readOnly,
// readOnlyRootFilesystem (for /tmp; the rest is always read-only), runAsUser, runAsGroup
// and capabilities, and supplementalGroups and fsGroup if the agent is root. If it is
// not, the one user and group of the pod stand for those of the agent; Validate rejects a
// pod with several. Programs cannot gain privileges (sudo, ping).
//
// Some things are not isolated: the network and sockets in files are those of the
// machine, readable files can be read, memory is not limited, and images are ignored. A
// command is looked up in the PATH of the container, else in that of the agent. Without
// a workingDir it runs in the folder of the agent, or in / if that is below /tmp.
//
// # Unconfined pods
//
// If CanConfine returns an error, a pod can run unconfined. Then nothing is mounted, and
// a container can do whatever its user can do. Each container has its own parent, which
// adopts orphaned processes (PR_SET_CHILD_SUBREAPER) and kills them when the command or
// the agent ends. If the parent itself is killed, the command ends but not the processes
// that it started. SIGTERM ends a command without a handler.
package process

import "github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"

// LogsDir is the folder for logs in the folder of a pod. It has a folder for each
// container.
const LogsDir = podfiles.Logs
