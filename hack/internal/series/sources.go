// SPDX-License-Identifier: Apache-2.0

package series

import (
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// Source is a new file of a patch.
type Source struct {
	Path    string // in this repository: a file of the library, or one in _src
	Content []byte // as in the tree
}

// FilesOf returns the new files of a patch, by their path in the tree: those of the library, and those in patches/_src/NAME. Versions
// in the directory of the series, or of the next newer release that has one, take precedence.
func (p Store) FilesOf(s *Series, name string) (map[string]Source, error) {
	files := map[string]Source{}
	for _, r := range s.mirror {
		if r.Patch != name {
			continue
		}
		found, _ := fs.Glob(os.DirFS(filepath.Join(p.Root, r.From)), "*.go")
		for _, name := range found {
			if !r.takes(name) {
				continue
			}
			file := filepath.Join(p.Root, r.From, name)
			content, err := p.render(s.mirror, file)
			if err != nil {
				return nil, err
			}
			files[path.Join(r.To, name)] = Source{file, content}
		}
	}
	copies := maps.Clone(files)
	dirs := append(p.Newer(s.Dir), filepath.Join(p.Root, "patches"))
	for _, dir := range slices.Backward(dirs) {
		found, err := readSources(filepath.Join(dir, "_src", name))
		if err != nil {
			return nil, err
		}
		for file, source := range found {
			if old, ok := copies[file]; ok {
				return nil, fmt.Errorf("%s and %s are both %s in the tree: remove one of them", old.Path, source.Path, file)
			}
		}
		maps.Copy(files, found)
	}
	return files, nil
}

// leftover matches files of editors, merges and killed commands.
var leftover = regexp.MustCompile(`^\.|~$|\.(orig|rej)$`)

// readSources returns the files below a directory, by their path in it. If it is missing, there are none.
func readSources(dir string) (map[string]Source, error) {
	files := map[string]Source{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && file == dir {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() || leftover.MatchString(d.Name()) {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		// In a mail, git treats a file with a NUL as binary, drops CR at the end of a line, and adds a missing LF.
		if text := string(content); !d.Type().IsRegular() || strings.Contains(text, "\x00") || strings.Contains(text, "\r\n") || text != "" && !strings.HasSuffix(text, "\n") {
			return fmt.Errorf("%s must be a regular text file whose lines end in LF: a mail cannot hold others", file)
		}
		name, err := filepath.Rel(dir, file)
		files[filepath.ToSlash(name)] = Source{Path: file, Content: content}
		return err
	})
	return files, err
}

// rule is a line of hack/mirror.txt: which files of the library a patch copies to the tree, and where.
type rule struct {
	Patch, From, To string
	patterns        []string
}

// readMirror reads hack/mirror.txt.
func (p Store) readMirror() (rules []*rule, err error) {
	file := filepath.Join(p.Root, "hack/mirror.txt")
	lines, err := sys.Lines(file)
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) < 4 || path.Base(f[1]) != path.Base(f[2]) {
			return nil, fmt.Errorf(`%s: %q must be "PATCH LIBRARY-FOLDER TREE-FOLDER PATTERN.go... [-PATTERN.go...]", where both folders have the same last element`, file, line)
		}
		rules = append(rules, &rule{f[0], f[1], f[2], f[3:]})
	}
	return rules, err
}

// takes reports whether the rule copies a file of this name.
func (r *rule) takes(name string) (takes bool) {
	for _, pattern := range r.patterns {
		if ok, _ := path.Match(strings.TrimPrefix(pattern, "-"), name); ok {
			takes = pattern[0] != '-'
		}
	}
	return takes
}

const spdx = "// SPDX-License-Identifier: Apache-2.0\n\n"

var (
	buildConstraint = regexp.MustCompile(`\A//go:build .*\n\n?`)
	// importLine matches an import of the library: without its path, and the folder.
	importLine = regexp.MustCompile(`(?m)^((?:import |\t)(?:[\w.]+ )?")github\.com/kubelet-backoff/kubelet-backoff/([^"\n]+)"`)
)

// render returns a file of the library as it is in the tree: with upstream's license header, and imports of the copied packages.
func (p Store) render(rules []*rule, file string) ([]byte, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	header, err := os.ReadFile(filepath.Join(p.Root, "hack/header.go.txt"))
	if err != nil {
		return nil, err
	}
	text := string(src)
	if rest, ok := strings.CutPrefix(text, spdx); ok {
		// Build constraints must come before the header.
		constraint := buildConstraint.FindString(rest)
		text = constraint + strings.Replace(string(header), "Copyright YEAR ", "Copyright ", 1) + "\n" + rest[len(constraint):]
	}
	unknown := ""
	text = importLine.ReplaceAllStringFunc(text, func(line string) string {
		m := importLine.FindStringSubmatch(line)
		for _, r := range rules {
			if r.From == m[2] {
				return m[1] + strings.TrimPrefix("k8s.io/kubernetes/"+r.To, "k8s.io/kubernetes/staging/src/") + `"`
			}
		}
		unknown = m[2]
		return line
	})
	if unknown != "" {
		return nil, fmt.Errorf("%s imports %s, which hack/mirror.txt does not copy", file, unknown)
	}
	out, err := format.Source([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s is not valid Go source: %v", file, err)
	}
	return out, nil
}
