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

// EmptyDirs returns the names of the volumes that a runtime makes, as empty folders
// until Files.Write: all but that of the API server's tokens, which is left out.
func EmptyDirs(pod *v1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if !isAPIAccess(&v) {
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

// Source returns the path that a mount of a volume is to show, which is the
// volume's folder or, with a subPath, something in it. What is not there becomes a
// folder. An error is for a subPath that leads elsewhere, also by a link that a
// container has made: it keeps the behaviour of pkg/volume/util/subpath, but for a
// link that is made between this call and the mount.
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
