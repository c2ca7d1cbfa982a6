// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/agent/cri"
)

// What is kept of the pods that were run: of so many, and so much together.
const (
	maxCachedPods  = 50
	maxCachedBytes = 1 << 30
)

// lockSuffix ends the name of a pod's lock, which begins as those of its folders
// do, with namespace_name.
const lockSuffix = ".lock"

// podFolders returns the folders of a pod below root: one for each manifest of it.
// Of all but the last that was run the logs are removed with the next run.
func podFolders(root, name string) (folders []string) {
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+"_") && e.IsDir() {
			folders = append(folders, filepath.Join(root, e.Name()))
		}
	}
	return folders
}

// inUse reports whether containers may run on that have volumes in a folder:
// those of a CRI runtime.
func inUse(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, cri.StatusFile))
	return err == nil
}

// prune removes what is kept of pods beyond so many and so many bytes, those first
// whose run began longest ago, but not of pods that run. What cannot be removed is
// for the next time.
func prune(root string, maxPods int, maxBytes int64) {
	entries, _ := os.ReadDir(root)
	var locks []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), lockSuffix) {
			locks = append(locks, info)
		}
	}
	slices.SortStableFunc(locks, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, l := range locks {
		folders := podFolders(root, strings.TrimSuffix(l.Name(), lockSuffix))
		for _, folder := range folders {
			filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() {
					if info, err := e.Info(); err == nil {
						maxBytes -= info.Size()
					}
				}
				return nil
			})
		}
		if i < maxPods && maxBytes >= 0 || slices.ContainsFunc(folders, inUse) {
			continue
		}
		path := filepath.Join(root, l.Name())
		unlock, err := lock(path)
		if err != nil {
			continue // It runs.
		}
		for _, folder := range folders {
			os.RemoveAll(folder)
		}
		os.Remove(path)
		unlock()
	}
}
