// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
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
	base
	active  []*patch
	dropped []string // patch files that are not in "series", or in SKIP
	travel  *travel
}

// base is what the file BASE of a series says.
type base struct {
	tag     string   // the release that it was made on
	applies []string // other releases of the minor version, which verify-all applies it to
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

func readBase(dir string) (base, error) {
	var b base
	file := filepath.Join(dir, "BASE")
	if !exists(file) {
		return b, fmt.Errorf("%s is missing: it must hold \"tag: v1.37.1\", and may hold \"applies: v1.37.0 v1.37.2\"", file)
	}
	lines, err := readLines(file)
	if err != nil {
		return b, err
	}
	for _, l := range lines {
		key, value, _ := strings.Cut(l.text, ":")
		switch key {
		case "tag":
			b.tag = strings.TrimSpace(value)
		case "applies":
			b.applies = strings.Fields(value)
		default:
			return b, fmt.Errorf("%s line %d: %q must begin with \"tag:\" or \"applies:\"", file, l.number, l.text)
		}
	}
	minor := filepath.Base(dir)
	if !versionPattern.MatchString(b.tag) || semver.MajorMinor(b.tag) != minor {
		return b, fmt.Errorf("%s: \"tag: %s\" must name a release of %s, such as \"tag: %s.1\"", file, b.tag, minor, minor)
	}
	for _, v := range b.applies {
		if !versionPattern.MatchString(v) || semver.MajorMinor(v) != minor {
			return b, fmt.Errorf("%s: \"applies: %s\" must name releases of %s", file, strings.Join(b.applies, " "), minor)
		}
	}
	return b, nil
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
		b, err := readBase(d)
		if err != nil {
			return err.Error()
		}
		made := fmt.Sprintf("%s: made on %s", filepath.Base(d), b.tag)
		if len(b.applies) > 0 {
			made += ", applies to " + strings.Join(b.applies, " ")
		}
		lines = append(lines, made)
	}
	if lines == nil {
		return "there is no series in " + p.patches
	}
	return strings.Join(lines, "\n")
}

// seriesFor is the directory of the series for a release: that of its minor version.
func (p *program) seriesFor(version string) (dir string, err error) {
	if p.seriesName != "" {
		dir = filepath.Join(p.patches, p.seriesName)
		if _, err := os.Stat(filepath.Join(dir, "BASE")); err != nil {
			return "", fail(fmt.Sprintf("KB_SERIES=%s: there is no such series", p.seriesName), p.describeSeries())
		}
		return dir, nil
	}
	dir = filepath.Join(p.patches, semver.MajorMinor(version))
	if !slices.Contains(p.allSeries(), dir) {
		return "", fail(fmt.Sprintf("no series fits kubernetes %s. There are, in %s:", version, p.patches), p.describeSeries(),
			"Choose one of these releases with KUBE_VERSION, or try a series on another release with KB_SERIES=NAME.")
	}
	return dir, nil
}

// pickSeries loads the series for a release. One that BASE does not name is tried: BASE says only what was tried already.
func (p *program) pickSeries(version string) (*series, error) {
	dir, err := p.seriesFor(version)
	if err != nil {
		return nil, err
	}
	s, err := p.loadSeries(dir)
	if err == nil && p.seriesName == "" && version != s.tag && !slices.Contains(s.applies, version) {
		p.note("%s is none of the releases that %s is tried on (%s); trying it all the same", version, s.name, strings.Join(append([]string{s.tag}, s.applies...), " "))
	}
	return s, err
}

// loadSeries reads a series and the files that it brings.
func (p *program) loadSeries(dir string) (*series, error) {
	s := &series{dir: dir, name: filepath.Base(dir), branch: branchPrefix + filepath.Base(dir)}
	var err error
	if s.base, err = readBase(dir); err != nil {
		return nil, err
	}
	if s.travel, err = p.readTravel(); err != nil {
		return nil, err
	}
	if err := p.checkOverrides(s); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "series")
	lines, err := readLines(file)
	if err != nil {
		return nil, err
	}
	skip := strings.Fields(p.skip)
	names := map[string]bool{}
	var numbers []string
	for _, l := range lines {
		m := patchFile.FindStringSubmatch(l.text)
		if m == nil {
			return nil, fmt.Errorf("%s: %q is not the name of a patch (NNNN-words.patch)", file, l.text)
		}
		mail, err := os.ReadFile(filepath.Join(dir, l.text))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s names %s, but there is no such file", file, l.text)
		}
		if err != nil {
			return nil, err
		}
		q := &patch{file: l.text, name: m[2], mail: string(mail)}
		q.number, _ = strconv.Atoi(m[1])
		if names[q.name] {
			return nil, fmt.Errorf("%s names two patches %q: the name is that of a directory in %s, so it must be one patch's", file, q.name, sourceDir)
		}
		names[q.name] = true
		numbers = append(numbers, fmt.Sprintf("%d %s", q.number, q.name))
		n := len(skip)
		skip = slices.DeleteFunc(skip, func(word string) bool {
			return word == q.name || strings.TrimLeft(word, "0") == strconv.Itoa(q.number)
		})
		if len(skip) < n {
			continue
		}
		if q.files, err = p.filesOf(s, q.name); err != nil {
			return nil, err
		}
		s.active = append(s.active, q)
	}
	if len(skip) > 0 {
		return nil, fail(fmt.Sprintf("SKIP=%q: %s has no patch %s. There are:", p.skip, s.name, strings.Join(skip, " or ")), numbers...)
	}
	for _, f := range glob(dir, "[0-9][0-9][0-9][0-9]-*.patch") {
		if !slices.ContainsFunc(s.active, func(q *patch) bool { return q.file == filepath.Base(f) }) {
			s.dropped = append(s.dropped, filepath.Base(f))
		}
	}
	return s, nil
}

// line is a line of a file that somebody writes by hand.
type line struct {
	number int
	text   string
}

// readLines are the lines of a file, without comments and empty ones. A file that is not there has none.
func readLines(file string) ([]line, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var lines []line
	for i, text := range strings.Split(string(data), "\n") {
		if text = strings.TrimSpace(text); text != "" && text[0] != '#' {
			lines = append(lines, line{i + 1, text})
		}
	}
	return lines, err
}

// sourceDir holds the new files of patches that are not the library's: below the patch's name, at their path in the
// tree. Go ignores what begins with an underscore.
const sourceDir = "_src"

// reasonsFile lists the files that a release has of its own, each with the reason.
const reasonsFile = "REASONS"

// filesOf are the files that a patch of this name brings: the library's files, those of patches/_src, and in their place
// the release's version, which is its own or that of the next newer release that has one.
func (p *program) filesOf(s *series, name string) (map[string]source, error) {
	files, err := s.travel.render(p.root, name)
	if err != nil {
		return nil, err
	}
	shared, err := readSources(filepath.Join(p.patches, sourceDir, name))
	if err != nil {
		return nil, err
	}
	for path, f := range shared {
		if old, ok := files[path]; ok {
			return nil, fmt.Errorf("%s and %s are both %s in the tree: only one of them can be", old.path, f.path, path)
		}
		files[path] = f
	}
	for _, dir := range slices.Backward(p.allSeries()) {
		versions, err := readSources(filepath.Join(dir, sourceDir, name))
		if err != nil {
			return nil, err
		}
		maps.Copy(files, versions)
		if dir == s.dir {
			break
		}
	}
	return files, nil
}

// leftover are the names of files that editors, merges and killed commands leave behind, which git may ignore.
var leftover = regexp.MustCompile(`^\.|~$|\.(orig|rej)$`)

// readSources are the files below a directory, by their path in it.
func readSources(dir string) (map[string]source, error) {
	files := map[string]source{}
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
			return fmt.Errorf("%s is no regular file, but %v: a patch can bring only files", file, info.Mode().Type())
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

// checkOverrides: each file that the release has of its own is listed, with the reason, and differs from the one that it
// takes the place of.
func (p *program) checkOverrides(s *series) error {
	own := filepath.Join(s.dir, sourceDir)
	overrides := map[string]bool{}
	list := filepath.Join(own, reasonsFile)
	lines, err := readLines(list)
	if err != nil {
		return err
	}
	for _, l := range lines {
		name, reason, ok := strings.Cut(l.text, ": ")
		if !ok || strings.TrimSpace(reason) == "" || path.Clean(name) != name {
			return fmt.Errorf("%s line %d: %q must be \"PATCH/PATH: why this release has a version of its own\"", list, l.number, l.text)
		}
		overrides[name] = true
	}
	files, err := readSources(own)
	if err != nil {
		return err
	}
	delete(files, reasonsFile)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !overrides[name] {
			return fail(fmt.Sprintf("%s is the version of %s, but %s has no reason for it", files[name].path, s.name, list),
				fmt.Sprintf("Add the line \"%s: REASON\", or make the change in %s.", name, filepath.Join(p.patches, sourceDir, name)))
		}
		newer, content, err := p.newerVersion(s, name)
		if err != nil {
			return err
		}
		if newer != "" && string(content) == string(files[name].content) {
			return fmt.Errorf("%s is the same as %s: remove it, and its line in %s", files[name].path, newer, list)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if _, ok := files[name]; !ok {
			return fmt.Errorf("%s has a reason for %s, but there is no such file in %s", list, name, own)
		}
	}
	return nil
}

// newerVersion is the file that the release has without one of its own: of the next newer release that has one, or that
// of all releases. There may be none.
func (p *program) newerVersion(s *series, name string) (file string, content []byte, err error) {
	dirs := p.allSeries()
	for _, dir := range append(dirs[slices.Index(dirs, s.dir)+1:], p.patches) {
		file = filepath.Join(dir, sourceDir, filepath.FromSlash(name))
		if content, err = os.ReadFile(file); !errors.Is(err, fs.ErrNotExist) {
			return file, content, err
		}
	}
	return "", nil, nil
}

// digest changes when the patches, or the files that they bring, change; mails when the patches do.
func (s *series) digest() (all, mails string) {
	a, m := sha256.New(), sha256.New()
	for _, q := range s.active {
		fmt.Fprintf(io.MultiWriter(a, m), "%s %d\n%s", q.file, len(q.mail), q.mail)
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
func (s *series) created() []string {
	var paths []string
	for _, q := range s.active {
		for path := range q.files {
			if !s.travel.replaces(path) {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// hunks are the files of the release that a patch changes, with how many lines it adds to them and removes.
func (p *program) hunks(q *patch) (map[string]int, error) {
	files := map[string]int{}
	if !strings.Contains(q.mail, "\ndiff --git ") {
		return files, nil
	}
	// Not in a repository: there, git looks at what is below the present directory alone.
	out, err := p.git("/").with("GIT_CEILING_DIRECTORIES=/").input(q.mail).out("apply", "--numstat", "-z", "-")
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", q.file, err)
	}
	for _, line := range strings.Split(strings.TrimRight(out, "\x00"), "\x00") {
		f := strings.SplitN(line, "\t", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("%s: git apply --numstat says %q", q.file, line)
		}
		// Of a binary file git counts no lines.
		added, _ := strconv.Atoi(f[0])
		removed, _ := strconv.Atoi(f[1])
		files[f[2]] = added + removed
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
	head, err := p.git(dir).input(mail).out("mailinfo", "body", "diff")
	if err != nil {
		return message{}, err
	}
	body, err := os.ReadFile(filepath.Join(dir, "body"))
	if err != nil {
		return message{}, err
	}
	h := map[string]string{}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
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

var dependency = regexp.MustCompile(`^#?0*(\d{1,4})([-.].*)?$`)

// checkDependencies: no patch stands without the patches it depends on, which it names by number or by name. Numbers
// change when patches are put in between, names do not.
func (p *program) checkDependencies(s *series) error {
	before := map[string]bool{}
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
			if d := dependency.FindStringSubmatch(word); d != nil {
				word = d[1]
			} else if len(glob(s.dir, "[0-9][0-9][0-9][0-9]-"+word+".patch")) == 0 {
				return fmt.Errorf("%s: Depends-On: %q is neither a patch number nor \"none\" nor the name of a patch", q.file, word)
			}
			if !before[word] {
				return fail(fmt.Sprintf("%s depends on patch %s, which the series does not have before it", q.file, word),
					fmt.Sprintf("Leave out %04d as well, or put patch %s back into %s/series.", q.number, word, s.dir))
			}
		}
		before[strconv.Itoa(q.number)], before[q.name] = true, true
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
			if len(glob(filepath.Join(treeDir, dir), "*.go")) == 0 {
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
