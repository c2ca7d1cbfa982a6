// SPDX-License-Identifier: Apache-2.0

// Package podfiles has the common names and limits of the runtimes of package agent.
package podfiles

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
