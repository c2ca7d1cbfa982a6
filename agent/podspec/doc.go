// SPDX-License-Identifier: Apache-2.0

// Package podspec prepares pods from files for package agent. [Default] sets the
// defaults that an API server would set. [Validate] returns errors for invalid and
// unsupported fields, and warnings for fields without effect. [Support] lists the fields
// that a runtime supports. [Objects] resolves references to ConfigMaps and Secrets. For
// runtimes, [MakeVolumes] creates the volumes, and [Environment], [Command] and [Mounts]
// resolve the remaining references of a container.
package podspec
