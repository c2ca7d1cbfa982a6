// SPDX-License-Identifier: Apache-2.0

// Package podfolder manages the folders in which crashloop run keeps the logs and
// volumes of pods. Below the root there is a folder NAMESPACE_NAME_UID for each pod,
// and a lock file NAMESPACE_NAME.lock for each name. The UID is a hash of the
// manifest, so a changed manifest gets a new folder.
package podfolder

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/cri"
)

// MaxPods and MaxBytes limit what crashloop run keeps of pods that have ended: the
// number of pods, and the size of all their files together.
const (
	MaxPods  = 50
	MaxBytes = 1 << 30
)

const lockSuffix = ".lock"

// Root is the root of the folders.
type Root struct {
	dir string
	// folders has the folders at the time of Open by NAMESPACE_NAME.
	folders map[string][]string
}

// Open reads the root and prunes it: it removes the folders of pods beyond the newest
// maxPods, or beyond maxBytes in all. It keeps pods that run, and ignores errors.
func Open(dir string, maxPods int, maxBytes int64) *Root {
	r := &Root{dir, map[string][]string{}}
	entries, _ := os.ReadDir(dir)
	var locks []fs.FileInfo
	for _, e := range entries {
		if end := strings.LastIndexByte(e.Name(), '_'); end >= 0 && e.IsDir() {
			name := e.Name()[:end]
			r.folders[name] = append(r.folders[name], filepath.Join(dir, e.Name()))
		} else if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), lockSuffix) {
			locks = append(locks, info)
		}
	}
	slices.SortStableFunc(locks, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, l := range locks {
		folders := r.folders[strings.TrimSuffix(l.Name(), lockSuffix)]
		for _, folder := range folders {
			maxBytes -= size(folder)
		}
		if i < maxPods && maxBytes >= 0 || slices.ContainsFunc(folders, inUse) {
			continue
		}
		path := filepath.Join(dir, l.Name())
		unlock, err := lock(path)
		if err != nil {
			continue // The pod runs.
		}
		for _, folder := range folders {
			os.RemoveAll(folder)
		}
		os.Remove(path)
		unlock()
	}
	return r
}

func name(pod *v1.Pod) string { return pod.Namespace + "_" + pod.Name }

// Path returns the folder of a pod.
func (r *Root) Path(pod *v1.Pod) string {
	return filepath.Join(r.dir, name(pod)+"_"+string(pod.UID))
}

// Make locks the name of a pod and makes its folder. The lock ends with unlock or
// with this process. The error is for a pod that another process runs, also from
// another manifest, and for a folder that cannot be made.
func (r *Root) Make(pod *v1.Pod) (dir string, unlock func(), err error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("%w: set another --root-dir", err)
	}
	if unlock, err = lock(filepath.Join(r.dir, name(pod)+lockSuffix)); err != nil {
		return "", nil, err
	}
	dir = r.Path(pod)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		unlock()
		return "", nil, err
	}
	return dir, unlock, nil
}

// RemoveOthers removes the folders that earlier manifests of a pod have left.
func (r *Root) RemoveOthers(pod *v1.Pod) {
	for _, folder := range r.folders[name(pod)] {
		if folder != r.Path(pod) && !inUse(folder) {
			os.RemoveAll(folder)
		}
	}
}

// inUse reports whether containers of a CRI runtime may still use the volumes in a
// folder.
func inUse(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, cri.StatusFile))
	return err == nil
}

// size returns the number of bytes in the files of a folder.
func size(folder string) (bytes int64) {
	filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}
