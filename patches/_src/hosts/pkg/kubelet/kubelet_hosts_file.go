/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package kubelet

import (
	"bytes"
	"io"
	"os"
)

// writeIfChanged writes the hosts file of a pod if its content differs. Each start of
// a container calls it. The file is usually unchanged, and reading it costs less than
// writing it.
func writeIfChanged(name string, content []byte, perm os.FileMode) error {
	if has(name, content) {
		return nil
	}
	return os.WriteFile(name, content, perm)
}

// has reports whether name is a regular file with this content. It reads no more than
// the length of content, because a container can make the file arbitrarily large.
func has(name string, content []byte) bool {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(content)) {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	old, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	return err == nil && bytes.Equal(old, content)
}
