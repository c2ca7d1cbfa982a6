// SPDX-License-Identifier: Apache-2.0

// Package series reads the patch series in patches/, and the files of the library that they copy to kubernetes.
package series

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/kubeversion"
)

const BranchPrefix = "kubelet-backoff-"

// Store is the repository, with the series and the files of the library.
type Store struct {
	Root    string  // this repository
	Patches string  // patches
	Git     git.Git // runs git
}

// Series is the content of a directory under patches/.
type Series struct {
	Dir, Name, Branch string
	Base
	Active  []*Patch
	Dropped []string // patch files that are not in "series", or that Pick leaves out
	Mirror  *mirror
	Vendor  string // the version of the library that is vendored; empty: its files are copied
}

// Base is the content of the file BASE of a series.
type Base struct {
	Tag     string   // the release that it was made on
	Applies []string // other releases of the minor version, which verify-all applies it to
	// VendorToo is true if verify-all tests it with the library in vendor too.
	VendorToo bool
}

// Patch is one patch of a series: the message, the hunks in upstream's files, and the new files.
type Patch struct {
	Number int
	File   string // 0006-restartpod.patch
	Name   string // restartpod
	Mail   string // the content of the file
	Files  map[string]Source
}

// Pick selects patches of a series. The zero value selects all.
type Pick struct {
	Parts string // PartCore, PartCost, or both; empty: both
	Skip  string // names or numbers of patches to leave out
}

// The parts of a series. PartCost makes restarts cheaper and applies on top of PartCore, which does without it.
const (
	PartCore = "core"
	PartCost = "cost"
)

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// Part returns the part of the series that the patch belongs to.
func (p Store) Part(q *Patch) (string, error) {
	m, err := p.Message(q.Mail)
	if err != nil {
		return "", err
	}
	values, err := p.Trailers(m, "Series")
	if err == nil && (len(values) != 1 || values[0] != PartCore && values[0] != PartCost) {
		err = fmt.Errorf("%s must have one trailer \"Series: %s\" or \"Series: %s\" in the last paragraph of its message", q.File, PartCore, PartCost)
	}
	if err != nil {
		return "", err
	}
	return values[0], nil
}

var PatchName = regexp.MustCompile(`^(\d{4})-(.*)\.patch$`)

// ReadBase reads and checks the file BASE of a series.
func ReadBase(dir string) (Base, error) {
	var b Base
	file := filepath.Join(dir, "BASE")
	if !fileutil.Exists(file) {
		return b, fmt.Errorf("%s is missing: it must have a line \"tag: v1.37.1\", and may have lines \"applies: v1.37.0 v1.37.2\" and \"vendor: yes\"", file)
	}
	lines, err := fileutil.Lines(file)
	if err != nil {
		return b, err
	}
	for _, l := range lines {
		key, value, _ := strings.Cut(l.Text, ":")
		value = strings.TrimSpace(value)
		switch {
		case key == "tag":
			b.Tag = value
		case key == "applies":
			b.Applies = strings.Fields(value)
		case key == "vendor" && value == "yes":
			b.VendorToo = true
		default:
			return b, fmt.Errorf("%s line %d: %q must begin with \"tag:\" or \"applies:\", or be \"vendor: yes\"", file, l.Number, l.Text)
		}
	}
	minor := filepath.Base(dir)
	if !kubeversion.Pattern.MatchString(b.Tag) || semver.MajorMinor(b.Tag) != minor {
		return b, fmt.Errorf("%s: \"tag: %s\" must name a release of %s, such as \"tag: %s.1\"", file, b.Tag, minor, minor)
	}
	for _, v := range b.Applies {
		if !kubeversion.Pattern.MatchString(v) || semver.MajorMinor(v) != minor {
			return b, fmt.Errorf("%s: \"applies: %s\" must name releases of %s", file, strings.Join(b.Applies, " "), minor)
		}
	}
	return b, nil
}

// All returns the directories with a series, oldest first.
func (p Store) All() []string {
	dirs := slices.DeleteFunc(fileutil.Glob(p.Patches, "v*"), func(dir string) bool { return len(fileutil.Glob(dir, "BASE")) == 0 })
	slices.SortFunc(dirs, func(a, b string) int { return semver.Compare(filepath.Base(a), filepath.Base(b)) })
	return dirs
}

// Describe lists the series, one a line.
func (p Store) Describe() string {
	var lines []string
	for _, d := range p.All() {
		b, err := ReadBase(d)
		if err != nil {
			return err.Error()
		}
		made := fmt.Sprintf("%s: made on %s", filepath.Base(d), b.Tag)
		if len(b.Applies) > 0 {
			made += ", applies to " + strings.Join(b.Applies, " ")
		}
		lines = append(lines, made)
	}
	if lines == nil {
		return "there is no series in " + p.Patches
	}
	return strings.Join(lines, "\n")
}

// Load reads the patches of a series that pick selects, and their new files.
func (p Store) Load(dir string, pick Pick) (*Series, error) {
	s := &Series{Dir: dir, Name: filepath.Base(dir), Branch: BranchPrefix + filepath.Base(dir)}
	var err error
	if s.Base, err = ReadBase(dir); err != nil {
		return nil, err
	}
	if s.Mirror, err = p.ReadMirror(); err != nil {
		return nil, err
	}
	if err := p.checkOverrides(s); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "series")
	lines, err := fileutil.Lines(file)
	if err != nil {
		return nil, err
	}
	skip, parts := words(pick.Skip), words(pick.Parts)
	for _, part := range parts {
		if part != PartCore && part != PartCost {
			return nil, fmt.Errorf("SERIES=%q: there is no %q, only %s and %s", pick.Parts, part, PartCore, PartCost)
		}
	}
	names := map[string]bool{}
	var numbers []string
	for _, l := range lines {
		m := PatchName.FindStringSubmatch(l.Text)
		if m == nil {
			return nil, fmt.Errorf("%s: %q is not the name of a patch (NNNN-words.patch)", file, l.Text)
		}
		mail, err := os.ReadFile(filepath.Join(dir, l.Text))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s names %s, but there is no such file", file, l.Text)
		}
		if err != nil {
			return nil, err
		}
		q := &Patch{File: l.Text, Name: m[2], Mail: string(mail)}
		q.Number, _ = strconv.Atoi(m[1])
		if names[q.Name] {
			return nil, fmt.Errorf("%s names two patches %q: each needs its own name, for its directory in %s", file, q.Name, SourceDir)
		}
		names[q.Name] = true
		numbers = append(numbers, fmt.Sprintf("%d %s", q.Number, q.Name))
		n := len(skip)
		skip = slices.DeleteFunc(skip, func(word string) bool {
			return word == q.Name || strings.TrimLeft(word, "0") == strconv.Itoa(q.Number)
		})
		if len(skip) < n {
			continue
		}
		if len(parts) > 0 {
			part, err := p.Part(q)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(parts, part) {
				continue
			}
		}
		if q.Files, err = p.FilesOf(s, q.Name); err != nil {
			return nil, err
		}
		s.Active = append(s.Active, q)
	}
	if len(skip) > 0 {
		return nil, console.Error(fmt.Sprintf("SKIP=%q: %s has no patch %s. Its patches are:", pick.Skip, s.Name, strings.Join(skip, " or ")), numbers...)
	}
	for _, f := range fileutil.Glob(dir, "[0-9][0-9][0-9][0-9]-*.patch") {
		if !slices.ContainsFunc(s.Active, func(q *Patch) bool { return q.File == filepath.Base(f) }) {
			s.Dropped = append(s.Dropped, filepath.Base(f))
		}
	}
	return s, nil
}

// Digest returns two digests: all is that of the patches and their new files, mails that of the patches alone.
func (s *Series) Digest() (all, mails string) {
	a, m := sha256.New(), sha256.New()
	if s.Vendor != "" {
		fmt.Fprintf(io.MultiWriter(a, m), "vendor %s\n", s.Vendor)
	}
	for _, q := range s.Active {
		fmt.Fprintf(io.MultiWriter(a, m), "%s %d\n%s", q.File, len(q.Mail), q.Mail)
		for _, path := range slices.Sorted(maps.Keys(q.Files)) {
			f := q.Files[path]
			fmt.Fprintf(a, "%s %s %d\n%s", path, f.Mode(), len(f.Content), f.Content)
		}
	}
	return fmt.Sprintf("%x", a.Sum(nil)), fmt.Sprintf("%x", m.Sum(nil))
}

// Created returns the paths of the files that the series adds.
func (s *Series) Created() []string {
	var paths []string
	for _, q := range s.Active {
		paths = slices.AppendSeq(paths, maps.Keys(q.Files))
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Vendored returns the folders of the root module that the series mirrors.
func (s *Series) Vendored() []string {
	var folders []string
	for _, r := range s.Mirror.Rules {
		if !r.Nested && slices.ContainsFunc(s.Active, func(q *Patch) bool { return q.Name == r.Patch }) {
			folders = append(folders, r.From)
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

const LibraryModule = "github.com/kubelet-backoff/kubelet-backoff"

// LeftOut returns the reasons for the patches that the series lacks, by name. It reads the lines "# left out: NAME: REASON" of
// the file series.
func (s *Series) LeftOut() (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(s.Dir, "series"))
	reasons := map[string]string{}
	for l := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(l), "# left out: "); ok {
			name, reason, _ := strings.Cut(text, ": ")
			active := slices.ContainsFunc(s.Active, func(q *Patch) bool { return q.Name == name })
			if reason == "" || active || reasons[name] != "" {
				return nil, fmt.Errorf("%s: \"# left out: %s\" must be \"# left out: NAME: REASON\", once, of a patch that the series lacks", filepath.Join(s.Dir, "series"), text)
			}
			reasons[name] = reason
		}
	}
	return reasons, err
}
