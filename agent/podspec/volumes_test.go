// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// The volume that an API server adds to each pod is not made, and its mounts are
// omitted.
func TestMounts(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{
			{Name: "kube-api-access-x2x4z", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
			{Name: "data", MountPath: "/data"},
			{Name: "data", MountPath: "/logs", SubPathExpr: "logs/$(POD)"},
		}}},
		Volumes: []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "kube-api-access-x2x4z", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}},
		},
	}}
	require.Equal(t, []v1.VolumeMount{
		{Name: "data", MountPath: "/data"}, {Name: "data", MountPath: "/logs", SubPath: "logs/web"},
	}, Mounts(pod, &pod.Spec.Containers[0], []v1.EnvVar{{Name: "POD", Value: "web"}}))

	dir := t.TempDir()
	require.NoError(t, MakeVolumes(pod, dir, -1))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "volumes/data/file"), nil, 0o600))
	require.NoError(t, MakeVolumes(pod, dir, os.Getegid()))
	require.FileExists(t, filepath.Join(dir, "volumes/data/file"), "an existing volume is kept")
	info, err := os.Stat(filepath.Join(dir, "volumes/data"))
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|fs.ModeSetgid|0o777, info.Mode())
	require.NoDirExists(t, filepath.Join(dir, "volumes/kube-api-access-x2x4z"))
}

func TestSource(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "app.conf"), nil, 0o600))
	require.NoError(t, os.Symlink("/", filepath.Join(folder, "out")))
	for _, tc := range []struct {
		mount v1.VolumeMount
		want  string
		err   string
	}{
		{mount: v1.VolumeMount{}, want: folder},
		{mount: v1.VolumeMount{SubPath: "app.conf"}, want: folder + "/app.conf"},
		{mount: v1.VolumeMount{SubPath: "a/b"}, want: folder + "/a/b"},
		{mount: v1.VolumeMount{SubPath: "/etc"}, err: `subPath "/etc" of volume v must be a path in the volume`},
		{mount: v1.VolumeMount{SubPath: "../a"}, err: `subPath "../a" of volume v must be a path in the volume`},
		{mount: v1.VolumeMount{SubPath: "out/etc"}, err: `subPath "out/etc" of volume v: `},
	} {
		tc.mount.Name = "v"
		got, err := Source(folder, &tc.mount)
		if tc.err != "" {
			require.ErrorContains(t, err, tc.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tc.want, got)
		require.True(t, func() bool { _, err := os.Stat(got); return err == nil }())
	}
}
