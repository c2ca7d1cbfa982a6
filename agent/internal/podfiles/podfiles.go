// SPDX-License-Identifier: Apache-2.0

// Package podfiles has the common names and limits of the runtimes of package agent.
package podfiles

import (
	"cmp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The content of a pod's folder: a folder with the volumes, a folder with the logs of
// each container, and the status for the next agent.
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

// Hostname returns the hostname of a pod, else as much of its name as Linux allows.
func Hostname(pod *v1.Pod) string {
	const longest = 63
	name := cmp.Or(pod.Spec.Hostname, pod.Name)
	return strings.TrimRight(name[:min(len(name), longest)], "-.")
}
