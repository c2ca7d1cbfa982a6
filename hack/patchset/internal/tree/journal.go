// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
)

// Journal describes a change of what is checked out. A file in the git directory has it while git makes the change. If the
// program is killed, the next command finds it.
type Journal struct {
	Branch string // the series branch
	Drop   string // the commit of the branch, if only a branch that is checked out may stay
	From   string // the commit of HEAD before the change
	To     string // and after it
}

const journalFile = "kubelet-backoff-journal"

// journalRef returns the name of a ref that keeps git from pruning the commit after the change, which may have no branch yet.
// It is not below refs/worktree, because a git that runs in another worktree would ignore it.
func (t *Tree) journalRef() string {
	// This is .git, or the name that git gave to the worktree.
	return "refs/kubelet-backoff/to-" + filepath.Base(t.Try("rev-parse", "--absolute-git-dir"))
}

// gitPaths returns the paths of files in the git directory. A worktree has some of its own.
func (t *Tree) gitPaths(names ...string) ([]string, error) {
	args := []string{"rev-parse", "--path-format=absolute"}
	for _, name := range names {
		args = append(args, "--git-path", name)
	}
	return t.Lines(args...)
}

// locks returns the paths of the locks that git takes during the change.
func (t *Tree) locks(j *Journal) ([]string, error) {
	files, err := t.gitPaths("index", "HEAD", "ORIG_HEAD", "config", "refs/heads/"+j.Branch, t.journalRef(), "packed-refs")
	if err != nil {
		return nil, err
	}
	// Git takes this one while it has the lock of packed-refs.
	locks := []string{files[len(files)-1] + ".new"}
	for _, file := range files {
		locks = append(locks, file+".lock")
	}
	return locks, nil
}

// Begin writes the journal of a change that comes next. It returns an error if git could not make the change, or would
// overwrite files that it does not track.
func (t *Tree) Begin(j *Journal) error {
	old, err := t.Changed(j.To, j.From)
	if err != nil {
		return err
	}
	maps.DeleteFunc(old, func(_ string, f git.File) bool { return f.Blob != "" })
	if err := t.requireAbsent(slices.Sorted(maps.Keys(old))); err != nil {
		return err
	}
	locks, err := t.locks(j)
	if err != nil {
		return err
	}
	for _, lock := range locks {
		if fileutil.Exists(lock) {
			return console.Error(fmt.Sprintf("%s exists: git is running in %s, or was killed there", lock, t.Dir), "Let it end. If none is running, remove the file.")
		}
	}
	file, err := t.gitPaths(journalFile)
	if err != nil {
		return err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := fileutil.Write(file[0], text, 0o666); err != nil {
		return err
	}
	if err := t.Do("update-ref", t.journalRef(), j.To); err != nil {
		return errors.Join(err, os.Remove(file[0]))
	}
	return nil
}

// Journal returns the journal of the change that is under way, or nil.
func (t *Tree) Journal() (*Journal, error) {
	file, err := t.gitPaths(journalFile)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	j := &Journal{}
	if err == nil {
		err = json.Unmarshal(text, j)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no journal of a change: %w", file[0], err)
	}
	return j, nil
}

// RemoveUnwritten removes what is left of a journal that a killed command was writing. It had changed nothing yet.
func (t *Tree) RemoveUnwritten() error {
	file, err := t.gitPaths(journalFile)
	if err == nil {
		fileutil.RemoveUnwritten(file[0])
	}
	return err
}

// End removes the journal.
func (t *Tree) End() error {
	// Reversing may have removed the repository.
	if !fileutil.Exists(filepath.Join(t.Dir, ".git")) {
		return nil
	}
	file, err := t.gitPaths(journalFile)
	if err == nil {
		err = t.Do("update-ref", "-d", t.journalRef())
	}
	if err != nil {
		return err
	}
	return os.Remove(file[0])
}

// RemoveLocks removes the locks that a killed git left during the change.
func (t *Tree) RemoveLocks(j *Journal) error {
	locks, err := t.locks(j)
	for _, lock := range locks {
		if e := os.Remove(lock); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Restore takes back what is left of a change that failed, or that was killed. A change that git has completed stays.
func (t *Tree) Restore(j *Journal, force bool) error {
	// Git sets HEAD last. The user may have moved it since.
	if head := t.CommitID("HEAD"); head != j.To {
		if err := t.restoreFiles(j, head, force); err != nil {
			return err
		}
	}
	if j.Drop != "" && t.Branch() != j.Branch && t.CommitID("refs/heads/"+j.Branch) == j.Drop {
		t.OK("branch", "-q", "-D", j.Branch)
	}
	if !t.HasBranch(j.Branch) {
		// Git writes the log of a new branch before the branch.
		log, err := t.gitPaths("logs/refs/heads/" + j.Branch)
		if err != nil {
			return err
		}
		_ = os.Remove(log[0])
	}
	t.forgetGone()
	// With this ref, the repository that apply made would hold more than the release.
	return t.Do("update-ref", "-d", t.journalRef())
}

// restoreFiles restores the files of HEAD that the change concerns, and their entries in the index.
func (t *Tree) restoreFiles(j *Journal, head string, force bool) error {
	changed, err := t.Changed(j.From, j.To)
	if err != nil || len(changed) == 0 {
		return err
	}
	paths := slices.Sorted(maps.Keys(changed))
	from, err := t.Files(head, paths...)
	if err != nil {
		return err
	}
	var edited, remove, write []string
	for _, path := range paths {
		content, executable, err := readFile(filepath.Join(t.Dir, path))
		if isMissing(err) {
			if from[path].Blob != "" {
				write = append(write, path)
			}
			continue
		} else if err != nil {
			return err
		}
		ours, restored := false, false
		for commit, f := range map[string]git.File{head: from[path], j.To: changed[path]} {
			if f.Blob == "" {
				continue
			}
			whole, err := t.Bytes("cat-file", "--filters", commit+":"+path)
			if err != nil {
				return err
			}
			// Git may have written only a part.
			ours = ours || strings.HasPrefix(string(whole), content)
			restored = restored || commit == head && string(whole) == content && executable == (f.Mode == "100755")
		}
		if !ours {
			edited = append(edited, path)
		}
		if !restored {
			remove = append(remove, path)
			if from[path].Blob != "" {
				write = append(write, path)
			}
		}
	}
	if len(edited) > 0 && !force {
		return console.Error(fmt.Sprintf("a command that changed %s was killed, and these files have been edited since:", t.Dir),
			append(edited, `Move them away, and run this again. "hack/patchset.sh reverse --force" discards them.`)...)
	}
	for _, path := range remove {
		if err := os.Remove(filepath.Join(t.Dir, path)); err != nil {
			return err
		}
	}
	for _, path := range paths {
		fileutil.RemoveEmpty(t.Dir, filepath.Dir(path))
	}
	const list, separator = "--pathspec-from-file=-", "--pathspec-file-nul"
	if err := t.Input(strings.Join(paths, "\x00")).Do("--literal-pathspecs", "reset", "-q", list, separator); err != nil {
		return err
	}
	// Git refuses to check out files that a sparse checkout leaves out.
	states, err := t.Bytes(slices.Concat([]string{"--literal-pathspecs", "ls-files", "-t", "-z", "--"}, write)...)
	write = slices.DeleteFunc(write, func(path string) bool { return strings.Contains("\x00"+string(states), "\x00S "+path+"\x00") })
	if err != nil || len(write) == 0 {
		return err
	}
	return t.Input(strings.Join(write, "\x00")).Do("--literal-pathspecs", "checkout", "-q", list, separator)
}

// isMissing reports whether there is no file at a path: nothing, or a directory, or a file in the place of its directory.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
}

// readFile returns what git stores of a file: its content, or the target of a link.
func readFile(path string) (content string, executable bool, err error) {
	if target, err := os.Readlink(path); err == nil {
		return target, false, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", false, err
	}
	info, err := os.Stat(path)
	return string(data), err == nil && info.Mode()&0o100 != 0, err
}
