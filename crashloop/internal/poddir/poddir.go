// SPDX-License-Identifier: Apache-2.0

// Package poddir manages the directories in which crashloop run keeps the logs and
// volumes of pods. They are in a folder of their own, below a directory that may be the
// user's, and that folder has a marker: without it, nothing in the folder is removed. There
// is a directory NAMESPACE_NAME_UID for each pod, and a lock file NAMESPACE_NAME.lock for
// each name. The UID is a hash of the manifest, so a changed manifest gets a new
// directory.
package poddir

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/cri"
)

// MaxPods and MaxBytes limit the number of ended pods that crashloop run keeps, and the
// total size of their files.
const (
	MaxPods  = 50
	MaxBytes = 1 << 30
)

const (
	// Folder is the folder of the pods, and marker the file in it that makes it so.
	Folder = "crashloop-pods"
	marker = ".crashloop"

	lockSuffix = ".lock"
)

// Root is the folder of the directories.
type Root struct {
	dir string
	// dirs maps NAMESPACE_NAME to the directories that existed when Open was called.
	dirs map[string][]string
}

// Open reads the folder below root and prunes it: it keeps the directories of the newest
// maxPods pods, up to maxBytes in total. It also keeps the directories of running pods. It
// ignores errors.
func Open(root string, maxPods int, maxBytes int64) *Root {
	root = filepath.Join(root, Folder)
	r := &Root{root, map[string][]string{}}
	if info, err := os.Lstat(filepath.Join(root, marker)); err != nil || !info.Mode().IsRegular() {
		return r
	}
	entries, _ := os.ReadDir(root)
	var locks []fs.FileInfo
	for _, e := range entries {
		if end := strings.LastIndexByte(e.Name(), '_'); end >= 0 && e.IsDir() {
			name := e.Name()[:end]
			r.dirs[name] = append(r.dirs[name], filepath.Join(root, e.Name()))
		} else if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), lockSuffix) {
			locks = append(locks, info)
		}
	}
	slices.SortStableFunc(locks, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, l := range locks {
		dirs := r.dirs[strings.TrimSuffix(l.Name(), lockSuffix)]
		for _, dir := range dirs {
			maxBytes -= size(dir)
		}
		if i < maxPods && maxBytes >= 0 || slices.ContainsFunc(dirs, inUse) {
			continue
		}
		path := filepath.Join(root, l.Name())
		unlock, err := lock(path)
		if err != nil {
			continue // The pod is running.
		}
		for _, dir := range dirs {
			os.RemoveAll(dir)
		}
		os.Remove(path)
		unlock()
	}
	return r
}

func name(pod *v1.Pod) string { return pod.Namespace + "_" + pod.Name }

// Path returns the directory of a pod.
func (r *Root) Path(pod *v1.Pod) string {
	return filepath.Join(r.dir, name(pod)+"_"+string(pod.UID))
}

// Make locks the name of a pod and creates its directory. The lock is released by unlock
// or at the end of this process. Make returns an error if another process runs a pod with
// the same name, or if the directory cannot be created.
func (r *Root) Make(pod *v1.Pod) (dir string, unlock func(), err error) {
	if err := r.mark(); err != nil {
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

// mark creates the folder with its marker. It returns an error if the folder has files but
// no marker: then they are the user's.
func (r *Root) mark() error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	file := filepath.Join(r.dir, marker)
	if _, err := os.Lstat(file); err == nil {
		return nil
	}
	// The marker comes first, so another crashloop that is creating the folder has no other file in it.
	if entries, err := os.ReadDir(r.dir); err != nil || len(entries) > 0 && entries[0].Name() != marker {
		return cmp.Or(err, fmt.Errorf("%s has files, but not %s, so crashloop did not make it", r.dir, marker))
	}
	return os.WriteFile(file, []byte("crashloop run keeps pods in this folder, and removes the oldest.\n"), 0o600)
}

// RemoveOthers removes the directories of earlier manifests of a pod.
func (r *Root) RemoveOthers(pod *v1.Pod) {
	for _, dir := range r.dirs[name(pod)] {
		if dir != r.Path(pod) && !inUse(dir) {
			os.RemoveAll(dir)
		}
	}
}

// inUse reports whether containers of a CRI runtime may still use the volumes in a
// directory.
func inUse(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, cri.StatusFile))
	return err == nil
}

// size returns the total size of the files in a directory.
func size(dir string) (bytes int64) {
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}
