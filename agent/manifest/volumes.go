// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
)

// MakeVolumes makes the missing volumes of a pod as folders in the folder of the pod, dir:
// all except the one for API tokens. As in the kubelet, every user may write to them.
// group is their group; -1 is that of the agent.
func MakeVolumes(pod *v1.Pod, dir string, group int) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if isAPIAccess(v) {
			continue
		}
		folder := filepath.Join(dir, podfiles.Volumes, v.Name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o777)
		if group >= 0 {
			if err := os.Chown(folder, -1, group); err != nil {
				return err
			}
			mode |= os.ModeSetgid
		}
		if err := os.Chmod(folder, mode); err != nil { // MkdirAll applies the umask.
			return err
		}
	}
	return nil
}

// Mounts returns the mounts of a container that use the volumes of MakeVolumes, with
// SubPathExpr expanded to SubPath.
func Mounts(pod *v1.Pod, c *v1.Container, env []v1.EnvVar) []v1.VolumeMount {
	var mounts []v1.VolumeMount
	for _, m := range c.VolumeMounts {
		if slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name && !isAPIAccess(&v) }) {
			m.SubPath, m.SubPathExpr = cmp.Or(m.SubPath, Expand([]string{m.SubPathExpr}, env)[0]), ""
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// Source returns the path to mount for a volume mount: the folder of the volume, or its
// subPath. It makes a missing subPath as a folder. The error is for a subPath that
// leads out of the volume, also through a link that a container has made. It keeps the
// behaviour of pkg/volume/util/subpath, but does not protect against a link that is
// made between this call and the mount.
func Source(folder string, m *v1.VolumeMount) (string, error) {
	below := m.SubPath
	if below == "" {
		return folder, nil
	}
	if !filepath.IsLocal(below) {
		return "", fmt.Errorf("subPath %q of volume %s must be a path in the volume", below, m.Name)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if _, err := root.Stat(below); err == nil {
		return filepath.Join(folder, below), nil
	}
	if err := root.MkdirAll(below, 0o777); err != nil {
		return "", fmt.Errorf("subPath %q of volume %s: %w", below, m.Name, err)
	}
	return filepath.Join(folder, below), nil
}
