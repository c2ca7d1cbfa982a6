// SPDX-License-Identifier: Apache-2.0

package modproxy

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
)

// pins are the hashes of a release's modules, from a file in the format of go.sum.
type pins struct {
	File    string
	Pinned  bool // whether the file has hashes of the release
	hashes  map[module.Version]string
	content []byte
}

// ReadPins reads the hashes of a release. A missing file has none.
func ReadPins(file, version string) (*pins, error) {
	s := &pins{File: file, hashes: map[module.Version]string{}}
	var err error
	if s.content, err = os.ReadFile(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for i, line := range strings.Split(string(s.content), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 || !strings.HasPrefix(f[2], "h1:") {
			return nil, fmt.Errorf("%s line %d: %q must be \"MODULE VERSION h1:HASH\"", s.File, i+1, line)
		}
		s.hashes[module.Version{Path: f[0], Version: f[1]}] = f[2]
	}
	s.Pinned = s.hashes[module.Version{Path: kubernetesModule, Version: version}] != ""
	return s, nil
}

func (s *pins) check(m module.Version, hash string) error {
	want := s.hashes[m]
	if want == hash || want == "" && !s.Pinned {
		return nil
	}
	if want == "" {
		want = "none: the file has other modules of this release, but not this one"
	}
	return console.Error(fmt.Sprintf("%s has the wrong hash:", m), "expected  "+want+"  ("+s.File+")", "actual    "+hash,
		"Either the proxy or the module cache has different content, or the file is wrong.")
}

// Pin adds the hashes of the downloaded modules to the file, and reports whether that changed the file.
func (d *Download) Pin() (changed bool, err error) {
	maps.Copy(d.Pins.hashes, d.Got)
	var lines []string
	for m, hash := range d.Pins.hashes {
		lines = append(lines, fmt.Sprintf("%s %s %s\n", m.Path, m.Version, hash))
	}
	slices.Sort(lines)
	content := strings.Join(lines, "")
	if content == string(d.Pins.content) {
		return false, nil
	}
	return true, fileutil.Write(d.Pins.File, []byte(content), 0o666)
}
