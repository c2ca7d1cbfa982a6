// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Remove implements agent.Runtime. When it returns nil, all instances have exited.
func (r *Runtime) Remove(ctx context.Context) error {
	r.mu.Lock()
	r.ready = false
	instances := slices.Collect(maps.Values(r.instances))
	r.mu.Unlock()
	for _, i := range instances {
		i.kill()
	}
	for _, i := range instances {
		if err := i.waitDone(ctx); err != nil {
			return err
		}
	}
	r.mu.Lock()
	parents := slices.Collect(maps.Values(r.idle))
	if r.parent != nil {
		parents = append(parents, r.parent)
	}
	r.mu.Unlock()
	for _, p := range parents {
		p.end()
		<-p.ended
	}
	return removeAll(r.volumes())
}

// removeAll removes a directory, even if directories in it are not writable.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
