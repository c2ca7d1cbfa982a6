// SPDX-License-Identifier: Apache-2.0

// Package manifest prepares pods that come from files for package agent. [Default]
// fills in what an API server would. [Validate] refuses what an API server, a
// kubelet or a runtime would, and names the fields that have no effect; what a
// runtime honours is a [Support]. [Environment], [Command] and [Mounts] resolve for
// a runtime what a container's fields refer to.
package manifest
