// SPDX-License-Identifier: Apache-2.0

package process

import "github.com/kubelet-backoff/kubelet-backoff/agent/podspec"

// Support lists the fields of a pod that the runtime supports. Validate rejects the values
// of these fields that the runtime cannot provide.
var Support = podspec.Support{Name: "process", NeedsCommand: true, Honored: []string{
	"spec.hostNetwork", "spec.hostPID", "spec.hostIPC", "spec.hostname",
	"spec.securityContext.runAsUser", "spec.securityContext.runAsGroup", "spec.securityContext.runAsNonRoot",
	"spec.securityContext.supplementalGroups", "spec.securityContext.fsGroup",
	"spec.containers.securityContext.runAsUser", "spec.containers.securityContext.runAsGroup", "spec.containers.securityContext.runAsNonRoot",
	"spec.containers.securityContext.readOnlyRootFilesystem", "spec.containers.securityContext.privileged",
	"spec.containers.securityContext.capabilities", "spec.containers.securityContext.allowPrivilegeEscalation",
	"spec.containers.volumeMounts.readOnly",
}}
