// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// EmptyDirs returns the names of the volumes that a runtime makes as empty folders: all
// except the one for API tokens.
func EmptyDirs(pod *v1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if !isAPIAccess(&v) {
			names = append(names, v.Name)
		}
	}
	return names
}

// Mounts returns the mounts of a container that use EmptyDirs.
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

// Source returns the path to mount for a volume mount: the folder of the volume, or its
// subPath. It makes a missing subPath as a folder. The error is for a subPath that
// leads out of the volume, also through a link that a container has made. It keeps the
// behaviour of pkg/volume/util/subpath, but does not protect against a link that is
// made between this call and the mount.
func Source(folder string, m *v1.VolumeMount, env []v1.EnvVar) (string, error) {
	below := cmp.Or(m.SubPath, Expand([]string{m.SubPathExpr}, env)[0])
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
