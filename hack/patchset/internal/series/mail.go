// SPDX-License-Identifier: Apache-2.0

package series

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
)

// Hunks returns the files of the release that a patch changes, with the number of lines that it adds and removes.
func (p Store) Hunks(q *Patch) (map[string]int, error) {
	files := map[string]int{}
	if !strings.Contains(q.Mail, "\ndiff --git ") {
		return files, nil
	}
	// Inside a repository, git apply would only report files below the current directory.
	out, err := p.Git.In("/").With("GIT_CEILING_DIRECTORIES=/").Input(q.Mail).Out("apply", "--numstat", "-z", "-")
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", q.File, err)
	}
	for _, line := range strings.Split(strings.TrimRight(out, "\x00"), "\x00") {
		f := strings.SplitN(line, "\t", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("%s: git apply --numstat says %q", q.File, line)
		}
		// Git counts no lines in binary files.
		added, _ := strconv.Atoi(f[0])
		removed, _ := strconv.Atoi(f[1])
		files[f[2]] = added + removed
	}
	return files, nil
}

// message is the author and the text of a patch.
type message struct {
	Author []string // as environment variables
	Text   string
}

// Message reads the mail of a patch as `git am` does.
func (p Store) Message(mail string) (message, error) {
	dir, err := os.MkdirTemp("", "patchset-")
	if err != nil {
		return message{}, err
	}
	defer os.RemoveAll(dir)
	head, err := p.Git.In(dir).Input(mail).Out("mailinfo", "body", "diff")
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
	text, err := p.Git.In(dir).Input(h["Subject"] + "\n\n" + string(body)).Bytes("stripspace")
	return message{
		Author: []string{"GIT_AUTHOR_NAME=" + h["Author"], "GIT_AUTHOR_EMAIL=" + h["Email"], "GIT_AUTHOR_DATE=" + h["Date"], "GIT_COMMITTER_DATE=" + h["Date"]},
		Text:   string(text),
	}, err
}

func (m message) Subject() string {
	s, _, _ := strings.Cut(m.Text, "\n")
	return s
}

// Trailers returns the values of a trailer of a message.
func (p Store) Trailers(m message, key string) ([]string, error) {
	lines, err := p.Git.In("/").Input(m.Text).Lines("interpret-trailers", "--parse")
	var values []string
	for _, l := range lines {
		if v, ok := strings.CutPrefix(l, key+":"); ok && strings.TrimSpace(v) != "" {
			values = append(values, strings.TrimSpace(v))
		}
	}
	return values, err
}

var dependency = regexp.MustCompile(`^#?0*(\d{1,4})([-.].*)?$`)

// CheckDependencies returns an error if the series lacks a patch that another one depends on, or has it later. The error also
// lists the patches that depend on that one in turn. Patches name their dependencies by number or by name. Inserting a patch
// changes numbers, but not names.
func (p Store) CheckDependencies(s *Series) error {
	before := map[string]bool{}
	var problems, leaveOut []string
	for _, q := range s.Active {
		complete := true
		m, err := p.Message(q.Mail)
		if err != nil {
			return err
		}
		values, err := p.Trailers(m, "Depends-On")
		if err != nil {
			return err
		}
		for _, word := range strings.FieldsFunc(strings.Join(values, " "), func(r rune) bool { return strings.ContainsRune(",; ", r) }) {
			if slices.Contains([]string{"none", "None", "nothing", "patch", "and", "-"}, word) {
				continue
			}
			if d := dependency.FindStringSubmatch(word); d != nil {
				word = d[1]
			} else if len(fileutil.Glob(s.Dir, "[0-9][0-9][0-9][0-9]-"+word+".patch")) == 0 {
				return fmt.Errorf("%s: Depends-On: %q is neither a patch number nor \"none\" nor the name of a patch", q.File, word)
			}
			if complete && !before[word] {
				complete = false
				problems = append(problems, fmt.Sprintf("%s depends on patch %s, which the series does not have before it", q.File, word))
				leaveOut = append(leaveOut, fmt.Sprintf("%04d", q.Number))
			}
		}
		before[strconv.Itoa(q.Number)], before[q.Name] = complete, complete
	}
	if len(problems) == 0 {
		return nil
	}
	problems = append(problems, fmt.Sprintf("Leave out %s as well, or add what they depend on to %s/series.", strings.Join(leaveOut, " "), s.Dir))
	return console.Error(problems[0], problems[1:]...)
}

// Packages returns the Go packages that patches change, as arguments for `go test` in the tree. A file below testdata belongs
// to the package of the directory that contains testdata.
func (p Store) Packages(treeDir string, patches ...*Patch) ([]string, error) {
	var packages []string
	for _, q := range patches {
		hunks, err := p.Hunks(q)
		if err != nil {
			return nil, err
		}
		for _, file := range slices.Concat(slices.Collect(maps.Keys(hunks)), slices.Collect(maps.Keys(q.Files))) {
			dir, _, below := strings.Cut(file, "/testdata/")
			if !below {
				if !strings.HasSuffix(file, ".go") {
					continue
				}
				dir = path.Dir(file)
			}
			if len(fileutil.Glob(filepath.Join(treeDir, dir), "*.go")) == 0 {
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
