// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// EmptyDirs returns the names of the volumes that a runtime makes. Of others
// Validate lets none pass but that of the API server's tokens, which is left out.
func EmptyDirs(pod *v1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.EmptyDir != nil {
			names = append(names, v.Name)
		}
	}
	return names
}

// Mounts returns a container's mounts of EmptyDirs.
func Mounts(pod *v1.Pod, c *v1.Container) []v1.VolumeMount {
	var mounts []v1.VolumeMount
	names := EmptyDirs(pod)
	for _, m := range c.VolumeMounts {
		if slices.Contains(names, m.Name) {
			mounts = append(mounts, m)
		}
	}
	return mounts
}
