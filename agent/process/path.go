// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"cmp"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// mount is a folder that a container is to find at another path.
type mount struct{ path, folder string }

// mounts returns those of a container, with the longest path first. volumes is
// the folder of the pod's volumes.
func mounts(of []v1.VolumeMount, volumes string) []mount {
	var list []mount
	for _, m := range of {
		// A relative path is one from the root for the kubelet.
		if p := path.Join("/", m.MountPath); p != "/" {
			list = append(list, mount{p, filepath.Join(volumes, m.Name, m.SubPath)})
		}
	}
	slices.SortStableFunc(list, func(a, b mount) int { return cmp.Compare(len(b.path), len(a.path)) })
	return list
}

// replaceMounts replaces the path of a mount by its folder wherever it stands as
// the beginning of a path, or as all of it. mounts has the longest path first.
func replaceMounts(s string, mounts []mount) string {
	var b strings.Builder
	begins := true // whether a path may begin here
next:
	for len(s) > 0 {
		if begins && s[0] == '/' {
			for _, m := range mounts {
				rest, ok := strings.CutPrefix(s, m.path)
				if ok && (rest == "" || rest[0] == '/' || !continuesElement(rest[0])) {
					b.WriteString(m.folder)
					s, begins = rest, false
					continue next
				}
			}
		}
		begins = !endsElement(s[0])
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}

func replaceAll(list []string, mounts []mount) []string {
	replaced := make([]string, 0, len(list))
	for _, s := range list {
		replaced = append(replaced, replaceMounts(s, mounts))
	}
	return replaced
}

// continuesElement tells whether a character after a name in a path makes it a
// longer name, by itself or by what a shell has for it.
func continuesElement(c byte) bool {
	return isNameChar(c) || strings.IndexByte("*?[{$`\\", c) >= 0
}

// endsElement tells whether a character before a slash makes the slash one
// within a path, by itself or as the end of what a shell replaces. Before a path
// of its own are more often the last of these, as in ${DIR:-/tmp} and -d @/file.
func endsElement(c byte) bool {
	return (isNameChar(c) || strings.IndexByte("/*?])}", c) >= 0) && strings.IndexByte("-+@", c) < 0
}

// isNameChar tells whether a character is likely one of a file's name, where a
// path stands between others.
func isNameChar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80 || strings.IndexByte("._-+@%~#^", c) >= 0
}
