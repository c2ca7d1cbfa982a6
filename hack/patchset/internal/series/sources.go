// SPDX-License-Identifier: Apache-2.0

package series

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
)

// Source is a new file of a patch in this repository.
type Source struct {
	Path    string // in this repository
	Library bool
	Exec    bool
	Content []byte // as in the tree
}

func (s Source) Mode() string {
	if s.Exec {
		return "100755"
	}
	return "100644"
}

// SourceDir contains the new files of patches that are not in the library, at PATCH/PATH. Go ignores names that start with an
// underscore.
const SourceDir = "_src"

// ReasonsFile lists the files of which a release has its own version, with the reasons.
const ReasonsFile = "REASONS"

// FilesOf returns the new files of the patch with this name: those of the library and of patches/_src. A version of the
// release, or of the next newer release that has one, takes precedence.
func (p Store) FilesOf(s *Series, name string) (map[string]Source, error) {
	files, err := s.Mirror.render(p.Root, name)
	if err != nil {
		return nil, err
	}
	shared, err := readSources(filepath.Join(p.Patches, SourceDir, name))
	if err != nil {
		return nil, err
	}
	for path, f := range shared {
		if old, ok := files[path]; ok {
			return nil, fmt.Errorf("%s and %s are both %s in the tree: remove one of them", old.Path, f.Path, path)
		}
		files[path] = f
	}
	for _, dir := range slices.Backward(p.All()) {
		versions, err := readSources(filepath.Join(dir, SourceDir, name))
		if err != nil {
			return nil, err
		}
		maps.Copy(files, versions)
		if dir == s.Dir {
			break
		}
	}
	return files, nil
}

// leftover matches files of editors, merges and killed commands, which git may ignore.
var leftover = regexp.MustCompile(`^\.|~$|\.(orig|rej)$`)

// readSources returns the files below a directory, by their path in it.
func readSources(dir string) (map[string]Source, error) {
	files := map[string]Source{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && file == dir {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() || leftover.MatchString(d.Name()) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file (%v): a patch can add only regular files", file, info.Mode().Type())
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := CheckContent(file, content); err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		files[filepath.ToSlash(name)] = Source{Path: file, Exec: info.Mode()&0o100 != 0, Content: content}
		return err
	})
	return files, err
}

// CheckContent returns an error for content that a mail would change.
func CheckContent(file string, content []byte) error {
	// Git treats a file with a NUL near its start as binary. In a mail every line ends with a line feed, also the last one.
	binary := bytes.Contains(content[:min(len(content), 8000)], []byte{0})
	if !binary && bytes.Contains(append(content[:len(content):len(content)], '\n'), []byte("\r\n")) {
		return console.Error(file + " has lines that end in CR LF, and git am drops the CR")
	}
	return nil
}

// checkOverrides returns an error unless each of the release's own versions is listed with a reason, and differs from the file
// that it replaces.
func (p Store) checkOverrides(s *Series) error {
	own := filepath.Join(s.Dir, SourceDir)
	overrides := map[string]bool{}
	list := filepath.Join(own, ReasonsFile)
	lines, err := fileutil.Lines(list)
	if err != nil {
		return err
	}
	for _, l := range lines {
		name, reason, ok := strings.Cut(l.Text, ": ")
		if !ok || strings.TrimSpace(reason) == "" || path.Clean(name) != name {
			return fmt.Errorf("%s line %d: %q must be \"PATCH/PATH: why this release has a version of its own\"", list, l.Number, l.Text)
		}
		overrides[name] = true
	}
	files, err := readSources(own)
	if err != nil {
		return err
	}
	delete(files, ReasonsFile)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !overrides[name] {
			return console.Error(fmt.Sprintf("%s is the version of %s, but %s has no reason for it", files[name].Path, s.Name, list),
				fmt.Sprintf("Add the line \"%s: REASON\", or make the change in %s.", name, filepath.Join(p.Patches, SourceDir, name)))
		}
		newer, content, err := p.newerVersion(s, name)
		if err != nil {
			return err
		}
		if newer != "" && string(content) == string(files[name].Content) {
			return fmt.Errorf("%s is the same as %s: remove it, and its line in %s", files[name].Path, newer, list)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if _, ok := files[name]; !ok {
			return fmt.Errorf("%s has a reason for %s, but there is no such file in %s", list, name, own)
		}
	}
	return nil
}

// newerVersion returns the file that the release would use without its own version: that of the next newer release with one,
// or the one for all releases. The path is empty if there is none.
func (p Store) newerVersion(s *Series, name string) (file string, content []byte, err error) {
	dirs := p.All()
	for _, dir := range append(dirs[slices.Index(dirs, s.Dir)+1:], p.Patches) {
		file = filepath.Join(dir, SourceDir, filepath.FromSlash(name))
		if content, err = os.ReadFile(file); !errors.Is(err, fs.ErrNotExist) {
			return file, content, err
		}
	}
	return "", nil, nil
}
