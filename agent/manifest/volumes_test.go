// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// The volume that an API server adds to each pod is not made, and its mounts are
// left out.
func TestMounts(t *testing.T) {
	data := v1.VolumeMount{Name: "data", MountPath: "/data"}
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{
			{Name: "kube-api-access-x2x4z", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}, data,
		}}},
		Volumes: []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "kube-api-access-x2x4z", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}},
		},
	}}
	require.Equal(t, []string{"data"}, EmptyDirs(pod))
	require.Equal(t, []v1.VolumeMount{data}, Mounts(pod, &pod.Spec.Containers[0]))
}
