// SPDX-License-Identifier: Apache-2.0

// Package podfiles has what the runtimes of package agent have in common.
package podfiles

// What a pod's folder has in it: a folder for each volume, one for the logs of
// each container, and the status that the next agent reads.
const (
	Volumes = "volumes"
	Logs    = "logs"
	Status  = "status.json"
)

// Limits that are the kubelet's: how much of a command's output Exec returns, in
// bytes, and containerLogMaxFiles.
const (
	MaxExecOutput = 10 << 10
	MaxLogFiles   = 5
)
