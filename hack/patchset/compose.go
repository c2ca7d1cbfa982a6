// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/tree"
)

// composed is a patch as a commit, and as a complete mail.
type composed struct {
	patch        *series.Patch
	commit, mail string
}

// otherCause matches errors of git that are not the fault of the patch.
var otherCause = regexp.MustCompile(`No space left on device|Disk quota exceeded|Read-only file system|Permission denied|Input/output error|[uU]nable to write`)

// errorLine matches what git apply --verbose says that is an error, and not the lines that it has searched for.
var errorLine = regexp.MustCompile(`(?m)^(?:error|fatal): .*[^:\n]$`)

// notApplicable returns the error for a patch that does not fit, or that git could not apply for another reason.
func (p *program) notApplicable(q *series.Patch, t *tree.Tree, said error) error {
	why := git.ExplainAm(said.Error())
	if why == "" || otherCause.MatchString(said.Error()) {
		return console.Error(fmt.Sprintf("%s cannot be applied to kubernetes %s in %s:", q.File, t.Version, t.Dir), said.Error())
	}
	return console.Error(fmt.Sprintf("%s does not apply to kubernetes %s in %s:", q.File, t.Version, t.Dir), why,
		"git says: "+console.Indent(console.LastLines(said.Error(), 3), " "), "The series in "+p.Patches+" are:", p.Describe())
}

// compose makes the commits of a series on top of base, from the hunks of each patch and its new files, and one more if the
// series vendors the library. It uses no working tree.
func (p *program) compose(r git.Git, base string, s *series.Series, t *tree.Tree) ([]composed, error) {
	dir, remove, err := fileutil.Scratch(p.output)
	if err != nil {
		return nil, err
	}
	defer remove()
	x := r.With("GIT_INDEX_FILE=" + filepath.Join(dir, "index"))
	if err := x.Do("read-tree", base); err != nil {
		return nil, err
	}
	var done []composed
	parent, author := base, []string(nil)
	for _, q := range s.Active {
		hunks, err := p.Hunks(q)
		if err != nil {
			return nil, err
		}
		for _, path := range slices.Sorted(maps.Keys(hunks)) {
			if f, ok := q.Files[path]; ok {
				return nil, console.Error(fmt.Sprintf("%s changes %s, but %s is that file", q.File, path, f.Path), "Remove one of them.")
			}
		}
		if len(hunks) > 0 {
			if err := p.applyHunks(x, q, t, slices.Sorted(maps.Keys(hunks))); err != nil {
				return nil, err
			}
		}
		upstream, err := r.Files(base, fileutil.WithParents(slices.Collect(maps.Keys(q.Files))...)...)
		if err != nil {
			return nil, err
		}
		staged := map[string]git.File{}
		for path, f := range q.Files {
			// Git would drop a file in the place of a directory.
			for _, at := range fileutil.WithParents(path) {
				if _, there := upstream[at]; there {
					return nil, p.notApplicable(q, t, fmt.Errorf("error: %s: already exists in index\nthe patch takes %s from %s", at, path, f.Path))
				}
			}
			blob, err := r.Store(f.Content)
			if err != nil {
				return nil, err
			}
			staged[path] = git.File{Mode: f.Mode(), Blob: blob}
		}
		if err := x.Stage(staged); err != nil {
			return nil, err
		}
		msg, err := p.Message(q.Mail)
		if err != nil {
			return nil, err
		}
		c := composed{patch: q}
		if c.commit, err = x.CommitIndex(parent, msg.Text, msg.Author...); err != nil {
			return nil, err
		}
		if c.commit == parent {
			return nil, fmt.Errorf("%s changes nothing in kubernetes %s", q.File, t.Version)
		}
		if c.mail, err = r.Mail(c.commit); err != nil {
			return nil, err
		}
		done, parent, author = append(done, c), c.commit, msg.Author
	}
	if s.Vendor != "" && len(s.Vendored()) > 0 {
		c, err := p.vendor(x, s, parent, author, dir)
		if err != nil {
			return nil, err
		}
		done = append(done, c)
	}
	return done, nil
}

// applyHunks applies the hunks of a patch to the index, if each is in the function that it was made for.
func (p *program) applyHunks(x git.Git, q *series.Patch, t *tree.Tree, paths []string) error {
	read := func() (map[string]string, error) {
		files := map[string]string{}
		for _, path := range paths {
			content, err := x.Bytes("show", ":"+path)
			if err != nil && x.OK("cat-file", "-e", ":"+path) {
				return nil, err
			}
			files[path] = string(content)
		}
		return files, nil
	}
	before, err := read()
	if err != nil {
		return err
	}
	said, err := x.Input(q.Mail).Command([]string{"apply", "--cached", "--verbose", "-"}).CombinedOutput()
	if err != nil {
		return p.notApplicable(q, t, console.Error("git apply: "+err.Error(), errorLine.FindAllString(string(said), -1)...))
	}
	after, err := read()
	if err != nil {
		return err
	}
	return requirePlaced(q, readHunks(q.Mail, string(said)), before, after)
}

// writeMails writes composed patches as mails to a directory, and returns their paths.
func writeMails(commits []composed, dir string) ([]string, error) {
	var files []string
	for _, c := range commits {
		files = append(files, filepath.Join(dir, c.patch.File))
		if err := fileutil.Write(files[len(files)-1], []byte(c.mail), 0o666); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// stored returns the patch file for a commit: the mail without the new files of the patch.
func (p *program) stored(r git.Git, commit string, brings map[string]bool) (string, error) {
	changed, err := r.Changed(commit+"^", commit)
	if err != nil {
		return "", err
	}
	var hunks []string
	for _, path := range slices.Sorted(maps.Keys(changed)) {
		if !brings[path] {
			hunks = append(hunks, path)
		}
	}
	mail, err := r.Mail(commit)
	if err != nil {
		return "", err
	}
	head, _, _ := strings.Cut(mail, "\ndiff --git ")
	text := strings.TrimRight(head, "\n") + "\n"
	if len(hunks) > 0 {
		diff, err := r.Bytes(slices.Concat([]string{"--literal-pathspecs", "diff-tree", "-p"}, git.DiffOptions, []string{commit + "^", commit, "--"}, hunks)...)
		if err != nil {
			return "", err
		}
		text += "\n" + string(diff)
	}
	// Git must read the patch file as the same commit.
	msg, err := p.Message(text)
	if err != nil {
		return "", err
	}
	author, err := r.Lines("log", "-1", "--format=GIT_AUTHOR_NAME=%an%nGIT_AUTHOR_EMAIL=%ae", commit)
	if err != nil {
		return "", err
	}
	if !slices.Equal(author, msg.Author[:2]) {
		return "", console.Error(fmt.Sprintf("the author of commit %s (%s) cannot be in a mail: git would read it as", commit[:12], msg.Subject()),
			append(msg.Author[:2], "Change the author (git commit --amend --author).")...)
	}
	if strings.Contains(text, "\r\n") {
		return "", fmt.Errorf("commit %s (%s) has lines that end in CR LF, and git am drops the CR", commit[:12], msg.Subject())
	}
	raw, err := r.Out("log", "-1", "--format=%B", commit)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(raw) != strings.TrimSpace(msg.Text) {
		return "", console.Error(fmt.Sprintf("the message of commit %s (%s) cannot be in a mail: git would read it as", commit[:12], msg.Subject()), msg.Text,
			"Reword it: one of its lines may look like the beginning of a diff.")
	}
	return text, nil
}
