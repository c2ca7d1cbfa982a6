// SPDX-License-Identifier: Apache-2.0

// Package podfiles defines the file names and limits that the runtimes of package agent
// share.
package podfiles

import (
	"cmp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The content of a pod's directory: a directory with the volumes, a directory with the
// logs of each container, and the status for the next agent.
const (
	Volumes = "volumes"
	Logs    = "logs"
	Status  = "status.json"
)

// Limits of the kubelet: the output of Exec in bytes, and containerLogMaxFiles.
const (
	MaxExecOutput = 10 << 10
	MaxLogFiles   = 5
)

// Hostname returns the hostname of a pod, by default its name, cut to the length that
// Linux allows.
func Hostname(pod *v1.Pod) string {
	const longest = 63
	name := cmp.Or(pod.Spec.Hostname, pod.Name)
	return strings.TrimRight(name[:min(len(name), longest)], "-.")
}
