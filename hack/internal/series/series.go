// SPDX-License-Identifier: Apache-2.0

// Package series reads the patch series in patches/. It knows nothing of kubernetes trees.
package series

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// Store is the repository, with the series and the files of the library.
type Store struct {
	Root   string // this repository
	Output string // KB_OUTPUT_DIR, or else _output
	Git    git.Git
}

// Open finds this repository: KB_ROOT, which hack/patchset.sh sets.
func Open(ctx context.Context) (p Store, err error) {
	if p.Root = os.Getenv("KB_ROOT"); p.Root == "" {
		return p, errors.New("KB_ROOT must be the path of this repository: run hack/patchset.sh")
	}
	if p.Git, err = git.New(ctx); err != nil {
		return p, err
	}
	p.Output, err = filepath.Abs(cmp.Or(os.Getenv("KB_OUTPUT_DIR"), filepath.Join(p.Root, "_output")))
	return p, err
}

// Series is the content of a directory of patches/, such as patches/v1.37.
type Series struct {
	Dir, Name string
	Tag       string   // the release that it was made on
	Applies   []string // other releases of the minor version that it is tested on
	Vendor    bool     // whether it is also tested with the library in vendor
	Patches   []*Patch
	Skipped   []string // the patches that Pick leaves out
	Dropped   []string // the patches whose lines are commented out
	mirror    []*rule
}

// Patch is one patch: the message, the hunks in upstream's files, and the new files.
type Patch struct {
	Number int    // from 1, in the order of the series
	Name   string // such as restartpod
	File   string // of the message and the hunks, which may be that of a newer release
	Mail   string // the content of File
	Files  map[string]Source
	Text   string         // the message
	Author []string       // as environment variables
	Hunks  map[string]int // the files of the release that it changes, with the number of lines that it adds and removes
}

// Pick selects patches of a series. The zero value selects those that are applied by default: Core and Cost.
type Pick struct {
	Parts string // Core, Cost, Asked, several of them, or Everything
	Skip  string // names of patches to leave out
}

// The parts of a series. Cost makes restarts cheaper and applies on top of Core, which does without it. Asked lets a pod change its
// back-off by annotation, and applies on top of both.
const (
	Core  = "core"
	Cost  = "cost"
	Asked = "asked"
	// Everything is all of them.
	Everything = "all"
)

// DefaultParts are the parts that are applied by default.
var DefaultParts = []string{Core, Cost}

// Parts are the parts of a series, in their order.
var Parts = []string{Core, Cost, Asked}

var release = regexp.MustCompile(`^v1\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.(0|[1-9]\d*))?$`)

// Release returns a release with its v: v1.37.1 for v1.37.1 and 1.37.1. Any other text is an error.
func Release(text string) (string, error) {
	v := "v" + strings.TrimPrefix(text, "v")
	if !release.MatchString(v) {
		return "", fmt.Errorf("%q is not a kubernetes release: it must look like v1.37.1 or v1.38.0-beta.0", text)
	}
	return v, nil
}

// Dirs returns the directories with a series, oldest first.
func (p Store) Dirs() []string {
	// Unlike for filepath.Glob, a "[" in the root's path is just that.
	files, _ := fs.Glob(os.DirFS(p.Root), "patches/v*/BASE")
	for i := range files {
		files[i] = filepath.Join(p.Root, filepath.Dir(files[i]))
	}
	slices.SortFunc(files, func(a, b string) int { return semver.Compare(filepath.Base(a), filepath.Base(b)) })
	return files
}

// Newer returns the directory and those of newer releases, from which it inherits files that it does not have: the nearest first.
func (p Store) Newer(dir string) []string {
	all := p.Dirs()
	return all[max(0, slices.Index(all, dir)):]
}

// LoadAll loads everything of all series, newest first.
func (p Store) LoadAll() (all []*Series, err error) {
	for _, dir := range slices.Backward(p.Dirs()) {
		s, err := p.Load(dir, Pick{Parts: Everything})
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// ReadBase reads the file BASE of a series.
func ReadBase(dir string) (*Series, error) {
	s := &Series{Dir: dir, Name: filepath.Base(dir)}
	file := filepath.Join(dir, "BASE")
	lines, err := sys.Lines(file)
	if err != nil {
		return nil, err
	}
	ok := func(v string) bool { return release.MatchString(v) && semver.MajorMinor(v) == s.Name }
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case key == "tag" && ok(value):
			s.Tag = value
		case key == "applies" && !slices.ContainsFunc(strings.Fields(value), func(v string) bool { return !ok(v) }):
			s.Applies = strings.Fields(value)
		case key == "vendor" && value == "yes":
			s.Vendor = true
		default:
			return nil, fmt.Errorf(`%s: %q must be "tag: %s.1", "applies: %[3]s.0 %[3]s.2" or "vendor: yes"`, file, line, s.Name)
		}
	}
	if s.Tag == "" {
		return nil, fmt.Errorf(`%s must have a line such as "tag: %s.1"`, file, s.Name)
	}
	return s, nil
}

var dropped = regexp.MustCompile(`(?m)^#\s*([\w-]+)$`)

// Load reads the patches of a series that pick selects, and their new files.
func (p Store) Load(dir string, pick Pick) (*Series, error) {
	s, err := ReadBase(dir)
	if err != nil {
		return nil, err
	}
	if s.mirror, err = p.readMirror(); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "series")
	names, err := sys.Lines(file)
	if err != nil {
		return nil, err
	}
	text, _ := os.ReadFile(file)
	for _, m := range dropped.FindAllStringSubmatch(string(text), -1) {
		if PatchFile(p.Newer(dir), m[1]) != "" {
			s.Dropped = append(s.Dropped, m[1])
		}
	}
	skip, parts := words(pick.Skip), words(pick.Parts)
	if len(parts) == 0 {
		parts = DefaultParts
	}
	for _, part := range parts {
		if part != Everything && !slices.Contains(Parts, part) {
			return nil, fmt.Errorf("SERIES=%q: there is no %q, only %s and %s", pick.Parts, part, strings.Join(Parts, ", "), Everything)
		}
	}
	for i, name := range names {
		q, err := p.load(s, i+1, name)
		if err != nil {
			return nil, err
		}
		if slices.Index(names, name) < i {
			return nil, fmt.Errorf("%s names %q twice", file, name)
		}
		left := slices.Contains(skip, name)
		if !slices.Contains(parts, Everything) && !left {
			part, err := q.Part()
			if err != nil && pick.Parts != "" {
				return nil, err
			}
			left = err == nil && !slices.Contains(parts, part)
		}
		if left {
			s.Skipped = append(s.Skipped, name)
		} else {
			s.Patches = append(s.Patches, q)
		}
	}
	for _, word := range skip {
		if !slices.Contains(names, word) {
			return nil, fmt.Errorf("SKIP=%q: %s has no patch %s. Its patches are %s", pick.Skip, s.Name, word, strings.Join(names, " "))
		}
	}
	return s, nil
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// PatchFile returns the file of a patch in the first of the directories that has one, or "".
func PatchFile(dirs []string, name string) string {
	for _, dir := range dirs {
		if file := filepath.Join(dir, name+".patch"); sys.Exists(file) {
			return file
		}
	}
	return ""
}

// load reads a patch: its file in the directory of the series, or in that of the next newer release that has one.
func (p Store) load(s *Series, number int, name string) (q *Patch, err error) {
	q = &Patch{Number: number, Name: name, File: PatchFile(p.Newer(s.Dir), name)}
	if q.File == "" {
		return nil, fmt.Errorf("%s names %q, but neither the series nor that of a newer release has %[2]s.patch", filepath.Join(s.Dir, "series"), name)
	}
	mail, err := os.ReadFile(q.File)
	if err != nil {
		return nil, err
	}
	q.Mail = string(mail)
	if err := p.Parse(q); err != nil {
		return nil, fmt.Errorf("%s: %w", q.File, err)
	}
	q.Files, err = p.FilesOf(s, name)
	return q, err
}

// Parse reads the mail of a patch as `git am` does.
func (p Store) Parse(q *Patch) error {
	dir, err := os.MkdirTemp("", "patchset-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g := p.Git.In(dir).Input(q.Mail)
	head, err := g.Out("mailinfo", "body", "diff")
	if err != nil {
		return err
	}
	body, err := os.ReadFile(filepath.Join(dir, "body"))
	if err != nil {
		return err
	}
	h := map[string]string{}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		h[key] = value
	}
	if q.Text, _, err = g.Input(h["Subject"] + "\n\n" + string(body)).Both("stripspace"); err != nil {
		return err
	}
	q.Author = []string{"GIT_AUTHOR_NAME=" + h["Author"], "GIT_AUTHOR_EMAIL=" + h["Email"], "GIT_AUTHOR_DATE=" + h["Date"], "GIT_COMMITTER_DATE=" + h["Date"]}
	q.Hunks = map[string]int{}
	if !strings.Contains(q.Mail, "\ndiff --git ") {
		return nil
	}
	// Inside a repository, git apply would only report files below the current directory.
	out, err := g.With("GIT_CEILING_DIRECTORIES="+dir).Out("apply", "--numstat", "-z", "-")
	for _, line := range strings.FieldsFunc(out, func(r rune) bool { return r == 0 }) {
		if f := strings.SplitN(line, "\t", 3); len(f) == 3 {
			// Git counts no lines in binary files.
			added, _ := strconv.Atoi(f[0])
			removed, _ := strconv.Atoi(f[1])
			q.Hunks[f[2]] = added + removed
		}
	}
	return err
}

// Subject returns the first line of the message.
func (q *Patch) Subject() string {
	subject, _, _ := strings.Cut(q.Text, "\n")
	return subject
}

// Trailer returns the value of a trailer, or "" if the message has none.
func (q *Patch) Trailer(key string) string {
	// The last one counts, because the message may have such a line too. It goes on in lines that begin with a space.
	all := regexp.MustCompile(`(?m)^`+key+`:[ \t]*(.*(?:\n[ \t].*)*)$`).FindAllStringSubmatch(q.Text, -1)
	return append([][]string{{"", ""}}, all...)[len(all)][1]
}

// Part returns the part of the series that the patch belongs to.
func (q *Patch) Part() (string, error) {
	part := q.Trailer("Series")
	if slices.Contains(Parts, part) {
		return part, nil
	}
	return "", fmt.Errorf("%s must have a trailer \"Series: PART\", where PART is one of %s, not %q", q.File, strings.Join(Parts, ", "), part)
}

// CheckDependencies returns an error if the series lacks a patch that another one depends on, or has it later. The error also
// names the patches that depend on that one in turn.
func (s *Series) CheckDependencies() error {
	complete := map[string]bool{"none": true}
	var problems, leaveOut []string
	for _, q := range s.Patches {
		complete[q.Name] = true
		for _, word := range words(q.Trailer("Depends-On")) {
			if !complete[word] {
				problems = append(problems, fmt.Sprintf("%s depends on %s, which the series does not have before it", q.Name, word))
				complete[q.Name] = false
			}
		}
		if !complete[q.Name] {
			leaveOut = append(leaveOut, q.Name)
		}
	}
	if problems == nil {
		return nil
	}
	problems = append(problems, "Leave out as well: "+strings.Join(leaveOut, " "))
	return sys.Error(problems[0], problems[1:]...)
}

// Digest identifies the patches and their files, with messages and comments.
func (s *Series) Digest() string {
	h := sha256.New()
	for _, q := range s.Patches {
		fmt.Fprintf(h, "%s %d\n%s", q.Name, len(q.Mail), q.Mail)
		for _, path := range slices.Sorted(maps.Keys(q.Files)) {
			fmt.Fprintf(h, "%s %d\n%s", path, len(q.Files[path].Content), q.Files[path].Content)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

var unimportant = regexp.MustCompile(`(?m)^(?:Date: .*\n|index [0-9a-f.]+.*\n|@@ -[0-9,]+ \+[0-9,]+ )`)

// Same reports whether two patches differ only in dates, blobs and line numbers.
func Same(a, b string) bool {
	return unimportant.ReplaceAllString(a, "") == unimportant.ReplaceAllString(b, "")
}

// Paths returns the files that the patch changes or adds, in no order.
func (q *Patch) Paths() []string {
	return slices.AppendSeq(slices.Collect(maps.Keys(q.Hunks)), maps.Keys(q.Files))
}

// Packages returns the Go packages that patches change, as arguments for `go test` in a tree. A file below testdata belongs to the
// package of the directory that contains testdata.
func Packages(patches ...*Patch) []string {
	var packages []string
	for _, q := range patches {
		for _, file := range q.Paths() {
			dir, _, below := strings.Cut(file, "/testdata/")
			if !below && !strings.HasSuffix(file, ".go") {
				continue
			}
			if !below {
				dir = path.Dir(file)
			}
			if rest, ok := strings.CutPrefix(dir, "staging/src/"); ok {
				packages = append(packages, rest)
			} else {
				packages = append(packages, "./"+dir)
			}
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}
