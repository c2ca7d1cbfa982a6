// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
)

// MakeVolumes creates a directory for each missing volume of a pod, except the volume for
// the API token. dir is the directory of the pod. As in the kubelet, every user may write
// to the volumes. group is their group, or -1 for the group of the agent.
func MakeVolumes(pod *v1.Pod, dir string, group int) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if isAPIAccess(v) {
			continue
		}
		volume := filepath.Join(dir, podfiles.Volumes, v.Name)
		if err := os.MkdirAll(volume, 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o777)
		if group >= 0 {
			if err := os.Chown(volume, -1, group); err != nil {
				return err
			}
			mode |= os.ModeSetgid
		}
		if err := os.Chmod(volume, mode); err != nil { // MkdirAll applies the umask.
			return err
		}
	}
	return nil
}

// Mounts returns the mounts of a container that use volumes from MakeVolumes. SubPathExpr
// is expanded and moved to SubPath. As in the kubelet, mounts of ConfigMaps, Secrets,
// projected volumes and the downward API are read-only.
func Mounts(pod *v1.Pod, c *v1.Container, env []v1.EnvVar) []v1.VolumeMount {
	var mounts []v1.VolumeMount
	for _, m := range c.VolumeMounts {
		if i := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name && !isAPIAccess(&v) }); i >= 0 {
			v := pod.Spec.Volumes[i].VolumeSource
			m.ReadOnly = m.ReadOnly || v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
			m.SubPath, m.SubPathExpr = cmp.Or(m.SubPath, Expand([]string{m.SubPathExpr}, env)[0]), ""
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// Source returns the path to mount for a volume mount: the directory of the volume, or
// its subPath. It creates a missing subPath as a directory. It returns an error if the
// subPath leads out of the volume, also through a symbolic link that a container has
// made. It keeps the behavior of pkg/volume/util/subpath, but does not protect against a
// link that is made between this call and the mount.
func Source(volume string, m *v1.VolumeMount) (string, error) {
	if m.SubPath == "" {
		return volume, nil
	}
	if !filepath.IsLocal(m.SubPath) {
		return "", fmt.Errorf("subPath %q of volume %s must be a path in the volume", m.SubPath, m.Name)
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if _, err := root.Stat(m.SubPath); err != nil {
		if err := root.MkdirAll(m.SubPath, 0o777); err != nil {
			return "", fmt.Errorf("subPath %q of volume %s: %w", m.SubPath, m.Name, err)
		}
	}
	return filepath.Join(volume, m.SubPath), nil
}
