// SPDX-License-Identifier: Apache-2.0

package series

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
)

// mirror is the content of hack/mirror.txt: which files of the library the patches mirror in kubernetes, and where. A mirrored
// file differs in its package clause (the name of the tree's directory, with _test kept), its imports of the library (the path
// of the mirrored package), and its licence (upstream's header, hack/header.go.txt, instead of the SPDX line). ToLibrary
// reverses these changes.
type mirror struct {
	File   string
	Rules  []*Rule
	header string
}

// Rule is a line of hack/mirror.txt.
type Rule struct {
	Patch, From, to string
	Nested          bool     // From is not in the root module
	patterns        []string // for file names; a leading "-" excludes files
}

const mirrorUsage = `expected "PATCH LIBRARY-FOLDER TREE-FOLDER PATTERN.go... [-PATTERN.go...]"`

// ReadMirror reads hack/mirror.txt. An error names the line.
func (p Store) ReadMirror() (*mirror, error) {
	m := &mirror{File: filepath.Join(p.Root, "hack", "mirror.txt")}
	lines, err := fileutil.Lines(m.File)
	if err != nil || lines == nil {
		return m, err
	}
	header, err := os.ReadFile(filepath.Join(p.Root, "hack", "header.go.txt"))
	if err != nil {
		return nil, err
	}
	m.header = string(header)
	for _, l := range lines {
		text, _, _ := strings.Cut(l.Text, "#")
		f := strings.Fields(text)
		bad := func(why string) error { return fmt.Errorf("%s line %d: %s", m.File, l.Number, why) }
		if len(f) < 4 {
			return nil, bad(mirrorUsage)
		}
		r := &Rule{Patch: f[0], From: path.Clean(f[1]), to: path.Clean(f[2])}
		top, _, _ := strings.Cut(r.From, "/")
		r.Nested = fileutil.Exists(filepath.Join(p.Root, top, "go.mod"))
		for _, word := range f[3:] {
			if _, err := path.Match(word, ""); err != nil || !strings.HasSuffix(word, ".go") || strings.Contains(word, "/") {
				return nil, bad(fmt.Sprintf("%q is not a pattern for the names of Go files; %s", word, mirrorUsage))
			}
			r.patterns = append(r.patterns, word)
		}
		m.Rules = append(m.Rules, r)
	}
	return m, nil
}

// Takes reports whether the rule mirrors a file of this name. Go ignores names that start with "." or "_".
func (r *Rule) Takes(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return false
	}
	takes := false
	for _, pattern := range r.patterns {
		stays := pattern[0] == '-'
		if ok, _ := path.Match(strings.TrimPrefix(pattern, "-"), name); ok {
			takes = !stays
		}
	}
	return takes
}

// InLibrary returns the path in the library for a path in the tree, or "" if the rule does not mirror such a file.
func (r *Rule) InLibrary(treePath string) string {
	dir, name := path.Split(treePath)
	if path.Clean(dir) != r.to || !r.Takes(name) {
		return ""
	}
	return path.Join(r.From, name)
}

// Home returns the rule that mirrors a file of a patch, and the file's path in the library. The rule is nil if there is none.
func (m *mirror) Home(patch, treePath string) (*Rule, string) {
	for _, r := range m.Rules {
		if r.Patch == patch {
			if lib := r.InLibrary(treePath); lib != "" {
				return r, lib
			}
		}
	}
	return nil, ""
}

// importPath returns the import path of a directory of the tree.
func importPath(dir string) string {
	if rest, ok := strings.CutPrefix(dir, "staging/src/"); ok {
		return rest
	}
	return "k8s.io/kubernetes/" + dir
}

// mirrored returns the rule that mirrors a package to this import path in the tree, or nil.
func (m *mirror) mirrored(imported string) *Rule {
	i := slices.IndexFunc(m.Rules, func(r *Rule) bool { return importPath(r.to) == imported })
	if i < 0 {
		return nil
	}
	return m.Rules[i]
}

// render returns the library's files that a patch mirrors, by their path in the tree.
func (m *mirror) render(root, patch string) (map[string]Source, error) {
	files := map[string]Source{}
	for _, r := range m.Rules {
		if r.Patch != patch {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(root, r.From))
		if err != nil {
			return nil, fmt.Errorf("%s names %s, but there is no such folder in %s", m.File, r.From, root)
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !r.Takes(e.Name()) {
				continue
			}
			found = true
			file := filepath.Join(root, r.From, e.Name())
			lib, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			content, err := m.ToTree(r, path.Join(r.From, e.Name()), lib)
			if err != nil {
				return nil, err
			}
			to := path.Join(r.to, e.Name())
			if old, ok := files[to]; ok {
				return nil, fmt.Errorf("%s: %s and %s are both %s in the tree", m.File, old.Path, file, to)
			}
			files[to] = Source{Path: file, Library: true, Content: content}
		}
		if !found {
			return nil, fmt.Errorf("%s: the patterns of %s match no file of %s", m.File, r.Patch, filepath.Join(root, r.From))
		}
	}
	return files, nil
}

const spdx = "// SPDX-License-Identifier: Apache-2.0\n"

var (
	buildConstraint = regexp.MustCompile(`\A//go:build .*\n(// \+build .*\n)*\n?`)
	copyrightLine   = regexp.MustCompile(`Copyright (20\d\d )?The Kubernetes Authors`)
)

// ToTree returns a file of the library as it is in the tree.
func (m *mirror) ToTree(r *Rule, lib string, src []byte) ([]byte, error) {
	text := string(src)
	if rest, ok := strings.CutPrefix(text, spdx); ok {
		rest = strings.TrimPrefix(rest, "\n")
		// Build constraints must come before the header.
		constraint := buildConstraint.FindString(rest)
		text = constraint + strings.Replace(m.header, "Copyright YEAR ", "Copyright ", 1) + "\n" + rest[len(constraint):]
	}
	return rewrite(lib, text, path.Base(r.to), func(name, imported string) (string, error) {
		from, ok := strings.CutPrefix(imported, LibraryModule+"/")
		if !ok {
			return imported, nil
		}
		to := ""
		for _, other := range m.Rules {
			if other.From == from {
				to = other.to
			}
		}
		if to == "" {
			return "", fmt.Errorf("imports %s, which hack/mirror.txt does not mirror", from)
		}
		if name == "" && path.Base(from) != path.Base(to) {
			return "", fmt.Errorf("give the import a name (%s %q): its package is named %s in the tree", path.Base(from), imported, path.Base(to))
		}
		return importPath(to), nil
	})
}

// ToLibrary returns a file of the tree as it is in the library. It returns an error if ToTree would not give the same file again.
func (m *mirror) ToLibrary(r *Rule, treePath string, src []byte) ([]byte, error) {
	lib := r.InLibrary(treePath)
	text := string(src)
	constraint := buildConstraint.FindString(text)
	rest := text[len(constraint):]
	if end := strings.Index(rest, "*/\n"); strings.HasPrefix(rest, "/*\n") && end > 0 && copyrightLine.MatchString(rest[:end]) {
		text = spdx + "\n" + constraint + strings.TrimPrefix(rest[end+len("*/\n"):], "\n")
	}
	back, err := rewrite(treePath, text, path.Base(r.From), func(name, imported string) (string, error) {
		other := m.mirrored(imported)
		switch {
		case other == nil:
			return imported, nil
		case name == "" && path.Base(other.From) != path.Base(imported):
			return "", fmt.Errorf("give the import a name: %q is a package named %s in the library", imported, path.Base(other.From))
		}
		return LibraryModule + "/" + other.From, nil
	})
	if err != nil {
		return nil, err
	}
	again, err := m.ToTree(r, lib, back)
	if err == nil && !bytes.Equal(again, src) {
		err = fmt.Errorf("%s cannot be copied to %s in the library, because the copy in the tree would differ: format it with gofmt, and use upstream's licence header", treePath, lib)
	}
	return back, err
}

// ImportLibrary returns a file of the tree that imports the root module instead of the packages mirrored from it.
func (m *mirror) ImportLibrary(file string, src []byte) ([]byte, error) {
	changed := false
	now, err := rewrite(file, string(src), "", func(_, imported string) (string, error) {
		r := m.mirrored(imported)
		if r == nil || r.Nested {
			return imported, nil
		}
		changed = true
		return LibraryModule + "/" + r.From, nil
	})
	if !changed {
		return src, err
	}
	return now, err
}

// rewrite replaces the package clause, unless pkg is empty, and the imports of Go source, and formats it.
func rewrite(file, src, pkg string, imports func(name, imported string) (string, error)) ([]byte, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, src, parser.ParseComments|parser.ImportsOnly)
	if err != nil {
		return nil, fmt.Errorf("%s is not valid Go source: %v", file, err)
	}
	type edit struct {
		node ast.Node
		text string
	}
	var edits []edit
	if pkg != "" && strings.HasSuffix(f.Name.Name, "_test") {
		pkg += "_test"
	}
	if pkg != "" {
		edits = append(edits, edit{f.Name, pkg})
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		name := ""
		if spec.Name != nil {
			name = spec.Name.Name
		}
		to, err := imports(name, imported)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %v", file, set.Position(spec.Pos()).Line, err)
		}
		edits = append(edits, edit{spec.Path, strconv.Quote(to)})
	}
	var out strings.Builder
	at := 0
	for _, e := range edits {
		out.WriteString(src[at:set.Position(e.node.Pos()).Offset])
		out.WriteString(e.text)
		at = set.Position(e.node.End()).Offset
	}
	rest := ""
	if pkg == "" && len(f.Decls) > 0 {
		// Only the imports have changed. They may have to be sorted again.
		end := set.Position(f.Decls[len(f.Decls)-1].End()).Offset
		src, rest = src[:end], src[end:]
	}
	out.WriteString(src[at:])
	formatted, err := format.Source([]byte(out.String()))
	if err != nil {
		return nil, fmt.Errorf("%s is not valid Go source: %v", file, err)
	}
	if rest != "" {
		formatted = append(bytes.TrimRight(formatted, "\n"), rest...)
	}
	return formatted, nil
}
