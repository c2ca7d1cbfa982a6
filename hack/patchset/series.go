// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
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

	"golang.org/x/mod/semver"
)

const branchPrefix = "kubelet-backoff-"

// series is a directory under patches/, read.
type series struct {
	dir, name, branch string
	tag               string // the release it was made on
	first, last       string // the range it was tested on
	active            []*patch
	dropped           []string // patch files that are not in "series", or in SKIP
}

// patch is one patch of a series: the message, the hunks in upstream's files, and the new files.
type patch struct {
	number int
	file   string // 0006-restartpod.patch
	name   string // restartpod
	mail   string // what is in the file
	files  map[string]source
}

// source is where a file that a patch brings is kept.
type source struct {
	path    string // in this repository
	library bool
	exec    bool
	content []byte // as it is in the tree
}

func (s source) mode() string {
	if s.exec {
		return "100755"
	}
	return "100644"
}

var patchFile = regexp.MustCompile(`^(\d{4})-(.*)\.patch$`)

func readBase(dir string) (tag, first, last string, err error) {
	file := filepath.Join(dir, "BASE")
	data, err := os.ReadFile(file)
	if err != nil {
		return "", "", "", fail(fmt.Sprintf("%s is missing: it must hold \"tag: v1.37.1\" and \"tested: FIRST LAST\"", file))
	}
	for s := bufio.NewScanner(strings.NewReader(string(data))); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		f := strings.Fields(value)
		switch {
		case key == "tag" && len(f) > 0:
			tag = f[0]
		case key == "tested" && len(f) > 0:
			first, last = f[0], f[len(f)-1]
		}
	}
	if !versionPattern.MatchString(tag) {
		return "", "", "", fail(fmt.Sprintf("%s: \"tag: %s\" must name a release, such as \"tag: v1.37.1\"", file, tag))
	}
	return tag, cmp.Or(first, tag), cmp.Or(last, first, tag), nil
}

// allSeries are the directories that hold a series, oldest first.
func (p *program) allSeries() []string {
	dirs := slices.DeleteFunc(glob(p.patches, "v*"), func(dir string) bool { return len(glob(dir, "BASE")) == 0 })
	slices.SortFunc(dirs, func(a, b string) int { return semver.Compare(filepath.Base(a), filepath.Base(b)) })
	return dirs
}

func (p *program) describeSeries() string {
	var lines []string
	for _, d := range p.allSeries() {
		tag, first, last, err := readBase(d)
		if err != nil {
			return err.Error()
		}
		lines = append(lines, fmt.Sprintf("%s: made on %s, tested from %s to %s", filepath.Base(d), tag, first, last))
	}
	if lines == nil {
		return "there is no series in " + p.patches
	}
	return strings.Join(lines, "\n")
}

// defaultVersion is the release that the newest series was made on.
func (p *program) defaultVersion() (string, error) {
	dirs := p.allSeries()
	if len(dirs) == 0 {
		return "", fail(fmt.Sprintf("no series in %s, so KUBE_VERSION must be given, e.g. KUBE_VERSION=v1.37.1", p.patches))
	}
	tag, _, _, err := readBase(dirs[len(dirs)-1])
	return tag, err
}

// seriesFor is the directory of the series for a release, and whether that was tested on it. A release of the same minor
// version outside the tested range is tried, because the range only says what was tried already; a release of another
// minor version is refused.
func (p *program) seriesFor(version string) (dir string, tested bool, err error) {
	if p.seriesName != "" {
		dir = filepath.Join(p.patches, p.seriesName)
		if _, err := os.Stat(filepath.Join(dir, "BASE")); err != nil {
			return "", false, fail(fmt.Sprintf("KB_SERIES=%s: there is no such series", p.seriesName), p.describeSeries())
		}
		return dir, true, nil
	}
	same := ""
	for _, d := range p.allSeries() {
		_, first, last, err := readBase(d)
		if err != nil {
			return "", false, err
		}
		if semver.Compare(first, version) <= 0 && semver.Compare(version, last) <= 0 {
			return d, true, nil
		}
		if filepath.Base(d) == semver.MajorMinor(version) {
			same = d
		}
	}
	if same == "" {
		return "", false, fail(fmt.Sprintf("no series fits kubernetes %s. There are, in %s:", version, p.patches), p.describeSeries(),
			"Choose one of these releases with KUBE_VERSION, or try a series on another release with KB_SERIES=NAME.")
	}
	return same, false, nil
}

// pickSeries loads the series for a release.
func (p *program) pickSeries(version string) (*series, error) {
	dir, tested, err := p.seriesFor(version)
	if err != nil {
		return nil, err
	}
	s, err := p.loadSeries(dir)
	if err == nil && !tested {
		p.note("%s is outside what %s was tested on (%s to %s); trying it all the same", version, s.name, s.first, s.last)
	}
	return s, err
}

// loadSeries reads a series and the files that it brings.
func (p *program) loadSeries(dir string) (*series, error) {
	s := &series{dir: dir, name: filepath.Base(dir)}
	s.branch = branchPrefix + s.name
	var err error
	if s.tag, s.first, s.last, err = readBase(dir); err != nil {
		return nil, err
	}
	skip := map[int]bool{}
	for _, word := range strings.Fields(p.skip) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fail(fmt.Sprintf("SKIP=%q: patch numbers are expected, e.g. \"4\" or \"4 6\"", p.skip))
		}
		skip[n] = true
	}
	file := filepath.Join(dir, "series")
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	active := map[string]bool{}
	for _, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := patchFile.FindStringSubmatch(line)
		if m == nil {
			return nil, fail(fmt.Sprintf("%s: %q is not the name of a patch (NNNN-words.patch)", file, line))
		}
		mail, err := os.ReadFile(filepath.Join(dir, line))
		if err != nil {
			return nil, fail(fmt.Sprintf("%s names %s, but there is no such file", file, line))
		}
		if active[line] {
			return nil, fail(fmt.Sprintf("%s names %s twice", file, line))
		}
		active[line] = true
		n, _ := strconv.Atoi(m[1])
		if skip[n] {
			active[line] = false
			continue
		}
		if slices.ContainsFunc(s.active, func(q *patch) bool { return q.name == m[2] }) {
			return nil, fail(fmt.Sprintf("%s names two patches %q: the name is that of a directory in %s, so it must be one patch's", file, m[2], sourceDir))
		}
		s.active = append(s.active, &patch{number: n, file: line, name: m[2], mail: string(mail)})
	}
	for _, f := range glob(dir, "[0-9][0-9][0-9][0-9]-*.patch") {
		if !active[filepath.Base(f)] {
			s.dropped = append(s.dropped, filepath.Base(f))
		}
	}
	return s, p.loadFiles(s)
}

// sourceDir holds the new files of patches that are not the library's: below the patch's name, at their path in the
// tree. Go ignores what begins with an underscore.
const sourceDir = "_src"

// reasonsFile lists the files that a release has of its own, each with the reason.
const reasonsFile = "REASONS"

// loadFiles reads what the patches bring: the library's files, those of patches/_src, and in their place those that
// the release has of its own.
func (p *program) loadFiles(s *series) error {
	if err := s.checkOverrides(filepath.Join(s.dir, sourceDir)); err != nil {
		return err
	}
	m, err := p.readTravel()
	if err != nil {
		return err
	}
	for _, q := range s.active {
		if q.files, err = p.filesOf(m, s, q.name); err != nil {
			return err
		}
	}
	return nil
}

// filesOf are the files that a patch of this name brings.
func (p *program) filesOf(m *travel, s *series, name string) (map[string]source, error) {
	files, err := m.render(p.root, name)
	if err != nil {
		return nil, err
	}
	shared := filepath.Join(p.patches, sourceDir)
	for _, dir := range []string{shared, filepath.Join(s.dir, sourceDir)} {
		found, err := readSources(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		for path, f := range found {
			if old, ok := files[path]; ok && dir == shared {
				return nil, fail(fmt.Sprintf("%s and %s are both %s in the tree: only one of them can be", old.path, f.path, path))
			}
			files[path] = f
		}
	}
	return files, nil
}

// readSources are the files below a directory, by their path in it.
func readSources(dir string) (map[string]source, error) {
	files := map[string]source{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && file == dir {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), newPrefix) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fail(fmt.Sprintf("%s is no regular file, but %v: a patch can bring only files", file, info.Mode().Type()))
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := checkContent(file, content); err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		files[filepath.ToSlash(name)] = source{path: file, exec: info.Mode()&0o100 != 0, content: content}
		return err
	})
	return files, err
}

// checkContent refuses what does not come through a mail.
func checkContent(file string, content []byte) error {
	// git takes for binary what has a NUL near its beginning. A line without an end has one in a mail.
	binary := bytes.Contains(content[:min(len(content), 8000)], []byte{0})
	if !binary && bytes.Contains(append(content[:len(content):len(content)], '\n'), []byte("\r\n")) {
		return fail(file + " has lines that end in CR LF, of which git am drops the CR")
	}
	return nil
}

// checkOverrides: each file that the release has of its own is listed, with the reason.
func (s *series) checkOverrides(own string) error {
	overrides := map[string]string{}
	list := filepath.Join(own, reasonsFile)
	data, err := os.ReadFile(list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, reason, ok := strings.Cut(line, ": ")
		if !ok || strings.TrimSpace(reason) == "" || path.Clean(name) != name {
			return fail(fmt.Sprintf("%s line %d: %q must be \"PATCH/PATH: why this release has a version of its own\"", list, i+1, line))
		}
		overrides[name] = reason
	}
	files, err := readSources(own)
	if err != nil {
		return err
	}
	delete(files, reasonsFile)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if overrides[name] == "" {
			return fail(fmt.Sprintf("%s is a version of %s alone, but %s has no reason for it", files[name].path, s.name, list),
				fmt.Sprintf("Add the line \"%s: REASON\", or make the change in %s.", name, filepath.Join(filepath.Dir(s.dir), sourceDir, name)))
		}
		shared, err := os.ReadFile(filepath.Join(filepath.Dir(s.dir), sourceDir, filepath.FromSlash(name)))
		if err == nil && string(shared) == string(files[name].content) {
			return fail(fmt.Sprintf("%s is the same as the version of all releases: remove it, and its line in %s", files[name].path, list))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if _, ok := files[name]; !ok {
			return fail(fmt.Sprintf("%s has a reason for %s, but there is no such file in %s", list, name, own))
		}
	}
	return nil
}

// digest changes when the patches, or the files that they bring, change; mails when the patches do.
func (s *series) digest() (all, mails string) {
	a, m := sha256.New(), sha256.New()
	for _, q := range s.active {
		fmt.Fprintf(m, "%s %d\n%s", q.file, len(q.mail), q.mail)
		fmt.Fprintf(a, "%s %d\n%s", q.file, len(q.mail), q.mail)
		for _, path := range slices.Sorted(maps.Keys(q.files)) {
			f := q.files[path]
			fmt.Fprintf(a, "%s %s %d\n%s", path, f.mode(), len(f.content), f.content)
		}
	}
	return fmt.Sprintf("%x", a.Sum(nil)), fmt.Sprintf("%x", m.Sum(nil))
}

func (p *program) recordApplied(t *tree, s *series, base, tip string) error {
	all, mails := s.digest()
	for _, kv := range [][2]string{{"base", base}, {"digest", all}, {"mails", mails}, {"tip", tip}} {
		if err := t.setState(s.branch, kv[0], kv[1]); err != nil {
			return err
		}
	}
	return nil
}

// created are the paths of new files.
func (s *series) created(m *travel) []string {
	var paths []string
	for _, q := range s.active {
		for path := range q.files {
			if !m.replaces(path) {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// count is how many lines a patch adds to a file and removes from it.
type count struct{ added, removed int }

// hunks are the files of the release that a patch changes.
func (p *program) hunks(q *patch) (map[string]count, error) {
	files := map[string]count{}
	if !strings.Contains(q.mail, "\ndiff --git ") {
		return files, nil
	}
	if err := p.needGit(); err != nil {
		return nil, err
	}
	// Not in a repository: there, git looks at what is below the present directory alone.
	out, err := p.git("/").with("GIT_CEILING_DIRECTORIES=/").input(q.mail).bytes("apply", "--numstat", "-z", "-")
	if err != nil {
		return nil, fail(fmt.Sprintf("%s cannot be read: %s", q.file, err))
	}
	for _, line := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		f := strings.SplitN(line, "\t", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("%s: git apply --numstat says %q", q.file, line)
		}
		added, _ := strconv.Atoi(f[0])
		removed, _ := strconv.Atoi(f[1])
		files[f[2]] = count{added, removed}
	}
	return files, nil
}

// message is the author and the text of a patch.
type message struct {
	author []string // as environment variables
	text   string
}

// message reads the mail of a patch as `git am` does.
func (p *program) message(mail string) (message, error) {
	dir, err := os.MkdirTemp("", "patchset-")
	if err != nil {
		return message{}, err
	}
	defer os.RemoveAll(dir)
	if err := p.needGit(); err != nil {
		return message{}, err
	}
	head, err := p.git(dir).input(mail).out("mailinfo", "body", "diff")
	if err != nil {
		return message{}, err
	}
	body, err := os.ReadFile(filepath.Join(dir, "body"))
	if err != nil {
		return message{}, err
	}
	h := map[string]string{}
	for _, line := range strings.Split(head, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		h[key] = value
	}
	text, err := p.git(dir).input(h["Subject"] + "\n\n" + string(body)).bytes("stripspace")
	return message{
		author: []string{"GIT_AUTHOR_NAME=" + h["Author"], "GIT_AUTHOR_EMAIL=" + h["Email"], "GIT_AUTHOR_DATE=" + h["Date"], "GIT_COMMITTER_DATE=" + h["Date"]},
		text:   string(text),
	}, err
}

func (m message) subject() string {
	s, _, _ := strings.Cut(m.text, "\n")
	return s
}

// trailers are the values of a trailer of a message.
func (p *program) trailers(m message, key string) ([]string, error) {
	lines, err := p.git("/").input(m.text).lines("interpret-trailers", "--parse")
	var values []string
	for _, l := range lines {
		if v, ok := strings.CutPrefix(l, key+":"); ok && strings.TrimSpace(v) != "" {
			values = append(values, strings.TrimSpace(v))
		}
	}
	return values, err
}

var dependency = regexp.MustCompile(`^#?(\d{1,4})([-.].*)?$`)

// checkDependencies: no patch stands without the patches it depends on.
func (p *program) checkDependencies(s *series) error {
	before := map[int]bool{}
	for _, q := range s.active {
		m, err := p.message(q.mail)
		if err != nil {
			return err
		}
		values, err := p.trailers(m, "Depends-On")
		if err != nil {
			return err
		}
		for _, word := range strings.FieldsFunc(strings.Join(values, " "), func(r rune) bool { return strings.ContainsRune(",; ", r) }) {
			if slices.Contains([]string{"none", "None", "nothing", "patch", "and", "-"}, word) {
				continue
			}
			d := dependency.FindStringSubmatch(word)
			if d == nil {
				return fail(fmt.Sprintf("%s: Depends-On: %q is neither a patch number nor \"none\"", q.file, word))
			}
			if n, _ := strconv.Atoi(d[1]); !before[n] {
				return fail(fmt.Sprintf("%s depends on patch %d, which the series does not have before it", q.file, n),
					fmt.Sprintf("Leave out %04d as well, or put patch %d back into %s/series.", q.number, n, s.dir))
			}
		}
		before[q.number] = true
	}
	return nil
}

// packages are the Go packages of the files that patches touch, as `go test` in the tree takes them. What is below
// testdata belongs to the package above it.
func (p *program) packages(treeDir string, patches ...*patch) ([]string, error) {
	var packages []string
	for _, q := range patches {
		hunks, err := p.hunks(q)
		if err != nil {
			return nil, err
		}
		for _, file := range slices.Concat(slices.Collect(maps.Keys(hunks)), slices.Collect(maps.Keys(q.files))) {
			dir, _, below := strings.Cut(file, "/testdata/")
			if !below {
				if !strings.HasSuffix(file, ".go") {
					continue
				}
				dir = path.Dir(file)
			}
			entries, _ := os.ReadDir(filepath.Join(treeDir, dir))
			if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".go") }) {
				continue
			}
			if rest, ok := strings.CutPrefix(dir, "staging/src/"); ok {
				packages = append(packages, rest)
			} else {
				packages = append(packages, "./"+dir)
			}
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), nil
}

func (p *program) packagesCommand() error {
	out := p.out
	p.out = p.errOut
	t, err := p.locate()
	if err != nil {
		return err
	}
	a, err := t.requireApplied()
	if err != nil {
		return err
	}
	s, err := p.loadSeries(filepath.Join(p.patches, a.series))
	if err != nil {
		return err
	}
	packages, err := p.packages(t.dir, s.active...)
	for _, name := range packages {
		fmt.Fprintln(out, name)
	}
	return err
}
