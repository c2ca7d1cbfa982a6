// SPDX-License-Identifier: Apache-2.0

// Package process is a runtime for package agent that runs each container as a process
// on this machine. It needs Linux, but no privileges and no images.
//
// # Confined pods
//
// A confined pod runs in a sandbox of bubblewrap (bwrap), which must be installed. It has
// its own user, PID, mount, IPC, UTS and network namespaces. In the sandbox is a parent
// process: the agent's executable, started again, in which an init function of this module
// takes over. The parent is PID 1 of the pod, and starts the sandbox of each container in
// that of the pod, with bwrap too. The command of a container is PID 1 in it. So, as in
// other container runtimes, the command does not get signals for which it has no handler,
// and its end kills all processes of the container. A command of Exec is one more bwrap,
// which enters the namespaces of the container and mounts the same files. The container can
// see that bwrap, but cannot trace it or use its files. No process of a container can see
// the parent. The end of the parent kills the pod, and the end of the
// agent, for whatever reason, ends the parent. The parent has its own session, so Ctrl-C
// reaches only the agent.
//
// A container has no capabilities, cannot gain privileges or make user namespaces, and
// cannot use the keys of the kernel. It sees the programs of the machine read-only: /usr,
// /etc, /opt and Options.HostDirs. Every instance has its own empty /tmp, and the pod shares
// /dev/shm. Both are in memory. A symbolic link in a subPath cannot lead out of its
// volume. The runtime supports readOnly, readOnlyRootFilesystem (for /tmp; the rest is
// always read-only), runAsUser and runAsGroup. On the machine all containers of a pod
// have the same user: that of the agent, or nobody if the agent is root.
//
// The containers of a pod share its network, which has a loopback interface only. Dial
// connects to it. The image is ignored. A command is looked up in the PATH of the
// container or, if it has none, of the agent. Without a workingDir it runs in the working
// directory of the agent, or in / if it does not see that.
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
