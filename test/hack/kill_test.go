// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// treeKinds are kinds, and a worktree.
var treeKinds = map[string]func(project, *testing.T) project{"clone": project.clone, "plain": project.plain, "worktree": project.worktree}

// halfCheckout is what git has done at the end of a checkout: all but HEAD.
const halfCheckout = `"$git" -C "$2" read-tree -m -u HEAD "${@: -1}"; `

// noLeftovers checks that nothing of a killed command is in the tree or in its git directory.
func (p project) noLeftovers(t *testing.T) {
	t.Helper()
	dirs := []string{p.root}
	if _, err := os.Stat(filepath.Join(p.root, ".git")); err == nil {
		dirs = append(dirs, p.git(p.root, "rev-parse", "--path-format=absolute", "--git-common-dir"))
	}
	for _, dir := range dirs {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if name := d.Name(); strings.HasSuffix(name, ".lock") || strings.Contains(name, "kubelet-backoff-") || name == "packed-refs.new" {
				t.Error(path, "is left")
			}
			return err
		}))
	}
}

// TestKilled kills apply and reverse at any time. The next command succeeds, and nothing is left.
func TestKilled(t *testing.T) {
	long(t)
	const kills = 67 // for each of three kinds of trees
	for name, kind := range treeKinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			run := func(command string) time.Duration {
				start := time.Now()
				p.ok(t, "hack/patchset.sh", command)
				return time.Since(start)
			}
			took := map[string]time.Duration{"apply": run("apply"), "reverse": run("reverse")}
			random := rand.New(rand.NewPCG(1, 2))
			ended := 0
			for n := range kills {
				command := "apply"
				if n%4 == 3 {
					command = "reverse"
					run("apply")
				}
				// The script would run the program with exec.
				cmd := p.command([]string{"KB_ROOT=" + p.dir}, shared.program, command)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				require.NoError(t, cmd.Start())
				after := time.Duration(random.Int64N(int64(took[command])))
				time.Sleep(after)
				pid, who := cmd.Process.Pid, "patchset"
				if n%2 == 0 {
					pid, who = -pid, "all its processes"
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
				if cmd.Wait() == nil {
					// The measured run was slower than this one.
					ended++
					took[command] = after
				}
				what := fmt.Sprintf("%d: %s, killed after %v: %s", n, command, after, who)
				if n%3 == 2 {
					out, err := p.try(nil, "hack/patchset.sh", "apply")
					require.NoError(t, err, "%s\n%s", what, out)
				}
				out, err := p.try(nil, "hack/patchset.sh", "reverse")
				require.NoError(t, err, "%s\n%s", what, out)
				require.Equal(t, before, p.snapshot(t, p.root), what)
				p.noLeftovers(t)
			}
			t.Logf("%d kills, %d came too late; apply took %v, reverse %v", kills, ended, took["apply"], took["reverse"])
			run("apply")
		})
	}
}

// TestKilledBeforeEachCommand kills apply and reverse before each git command in the tree, except for those that only read or
// compose.
func TestKilledBeforeEachCommand(t *testing.T) {
	long(t)
	const others = "@(apply|cat-file|commit-tree|diff-tree|for-each-ref|format-patch|hash-object|log|ls-tree|show|show-ref|status|symbolic-ref|update-index|write-tree)"
	for name, kind := range kinds {
		for _, command := range []string{"apply", "reverse"} {
			t.Run(command+" "+name, func(t *testing.T) {
				p := kind(newProject(t), t)
				before := p.snapshot(t, p.root)
				for n := 1; ; n++ {
					if command == "reverse" {
						p.ok(t, "hack/patchset.sh", "apply")
					}
					count := filepath.Join(t.TempDir(), "count")
					env := gitAt(t, fmt.Sprintf(`$2 == %q* && $3 != %s && $* != *\ --@(get|verify)\ * ]] && echo x >>%q && [[ $(wc -l <%q) == %d`, p.root, others, count, count, n), "kill -KILL $PPID; exit 1")
					out, err := p.try(env, "hack/patchset.sh", command)
					if n%2 == 0 {
						p.ok(t, "hack/patchset.sh", "apply")
					}
					p.ok(t, "hack/patchset.sh", "reverse")
					require.Equal(t, before, p.snapshot(t, p.root), n)
					p.noLeftovers(t)
					if err == nil {
						t.Logf("killed before each of %d commands", n-1)
						require.Greater(t, n, 5, out)
						return
					}
				}
			})
		}
	}
}

// killed returns a clone in which an apply was killed at the end of its checkout. prepare may change the clone first.
func killed(t *testing.T, prepare ...func(p project)) (p project, before string) {
	t.Helper()
	p = newProject(t).clone(t)
	for _, do := range prepare {
		do(p)
	}
	before = p.snapshot(t, p.root)
	env := gitBefore(t, `*\ checkout\ -q\ -b*`, halfCheckout+`touch "$2/.git/index.lock"; kill -KILL $PPID; exit 1`)
	out, err := p.try(env, "hack/patchset.sh", "apply")
	require.Error(t, err, out)
	require.Contains(t, read(filepath.Join(p.root, "pkg/kubelet/kubelet.go")), "patched")
	return p, before
}

// TestKilledInJournal: a journal that was being written is removed.
func TestKilledInJournal(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	write(p.root, map[string]string{".git/.new.kubelet-backoff-journal": `{"Bra`})
	p.ok(t, "hack/patchset.sh", "reverse")
	p.noLeftovers(t)
	assert.Equal(t, before, p.snapshot(t, p.root))
}

// TestEditedAfterKill: the files of the user are not lost.
func TestEditedAfterKill(t *testing.T) {
	p, before := killed(t)
	const edited, created = "pkg/kubelet/kubelet.go", "pkg/kubelet/restart/decide.go"
	mine := filepath.Join(p.root, "pkg/kubelet/restart/mine.txt")
	edit(t, filepath.Join(p.root, edited), "patched", "mine")
	write(p.root, map[string]string{created: "mine", "pkg/kubelet/restart/mine.txt": "mine"})
	edit(t, filepath.Join(p.root, "go.work"), "go 1.22.0", "go 1.23.0")
	for _, command := range []string{"apply", "reverse", "refresh"} {
		out, err := p.try(nil, "hack/patchset.sh", command)
		require.Error(t, err, out)
		for _, words := range []string{"was killed", edited, created, "Move them away", "reverse --force"} {
			assert.Contains(t, out, words)
		}
		assert.NotContains(t, out, "go.work")
		assert.NotContains(t, out, "mine.txt")
		assert.Contains(t, read(filepath.Join(p.root, edited)), "mine")
	}
	require.NoError(t, os.Rename(filepath.Join(p.root, created), filepath.Join(p.root, "kept")))
	p.fails(t, nil, []string{edited}, "hack/patchset.sh", "reverse")
	p.ok(t, "hack/patchset.sh", "reverse", "--force")
	assert.Equal(t, "mine", read(filepath.Join(p.root, "kept")))
	assert.Equal(t, "mine", read(mine))
	assert.Equal(t, "M go.work", p.git(p.root, "status", "--porcelain", "--untracked-files=no"))
	p.git(p.root, "checkout", "-q", "go.work")
	require.NoError(t, os.Remove(mine))
	require.NoError(t, os.Remove(filepath.Join(p.root, "kept")))
	require.NoError(t, os.Remove(filepath.Dir(mine)))
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.noLeftovers(t)
}

// TestForceAfterKill: force discards what an error has listed, and no more.
func TestForceAfterKill(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	p.ok(t, "hack/patchset.sh", "apply")
	out, err := p.try(gitBefore(t, `*\ checkout\ -q\ main*`, halfCheckout+`kill -KILL $PPID; exit 1`), "hack/patchset.sh", "reverse")
	require.Error(t, err, out)
	const edited = "pkg/kubelet/kubelet.go"
	work := filepath.Join(p.root, "go.work")
	edit(t, filepath.Join(p.root, edited), "stock", "mine")
	edit(t, work, "go 1.22.0", "go 1.23.0")
	out, err = p.try(nil, "hack/patchset.sh", "reverse")
	require.Error(t, err, out)
	assert.Contains(t, out, edited)
	assert.NotContains(t, out, "go.work")
	out, err = p.try(nil, "hack/patchset.sh", "reverse", "--force")
	require.Error(t, err, out)
	assert.Contains(t, out, "not committed")
	assert.Contains(t, out, "go.work")
	assert.NotContains(t, out, edited)
	assert.Contains(t, read(work), "go 1.23.0")
	assert.Contains(t, read(filepath.Join(p.root, edited)), "patched")
	p.ok(t, "hack/patchset.sh", "reverse", "--force")
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.noLeftovers(t)
}

// TestMovedAfterKill: the user commits before the next command. The new commit stays, and the rest of the killed command goes.
func TestMovedAfterKill(t *testing.T) {
	const created = "pkg/kubelet/restart/decide.go"
	for name, tc := range map[string]struct{ path, old, new string }{
		"a file of the user":   {"go.work", "go 1.22.0", "go 1.23.0"},
		"a file of the series": {"pkg/kubelet/kubelet.go", "// one", "// mine"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := killed(t)
			require.NoError(t, os.Remove(filepath.Join(p.root, ".git/index.lock")))
			edit(t, filepath.Join(p.root, tc.path), tc.old, tc.new)
			p.git(p.root, "commit", "-q", "-m", "mine", "--", tc.path)
			head := p.git(p.root, "rev-parse", "HEAD")
			theirs := read(filepath.Join(p.root, created))
			write(p.root, map[string]string{created: "mine"})
			for range 2 {
				p.fails(t, nil, []string{"was killed", created, "Move them away"}, "hack/patchset.sh", "reverse")
			}
			write(p.root, map[string]string{created: theirs})
			p.ok(t, "hack/patchset.sh", "reverse")
			assert.Equal(t, head, p.git(p.root, "rev-parse", "main"))
			assert.Empty(t, p.git(p.root, "status", "--porcelain", "--ignored"))
			assert.NoFileExists(t, filepath.Join(p.root, created))
			assert.Contains(t, read(filepath.Join(p.root, tc.path)), tc.new)
			assert.Empty(t, p.git(p.root, "branch", "--list", branch))
			p.noLeftovers(t)
		})
	}
}

// TestPrunedAfterKill: git keeps the commits that the next command needs.
func TestPrunedAfterKill(t *testing.T) {
	for name, kind := range map[string]func(project, *testing.T) project{"clone": project.clone, "worktree": project.worktree} {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			out, err := p.try(gitBefore(t, `*\ checkout\ -q\ -b*`, halfCheckout+`kill -KILL $PPID; exit 1`), "hack/patchset.sh", "apply")
			require.Error(t, err, out)
			// In the main worktree, also if the command was killed in another one.
			p.git(filepath.Dir(p.git(p.root, "rev-parse", "--path-format=absolute", "--git-common-dir")), "gc", "-q", "--prune=now")
			p.ok(t, "hack/patchset.sh", "reverse")
			assert.Equal(t, before, p.snapshot(t, p.root))
			p.noLeftovers(t)
			for _, command := range []string{"apply", "refresh", "reverse"} {
				p.ok(t, "hack/patchset.sh", command)
				assert.NotContains(t, p.git(p.root, "for-each-ref"), "refs/kubelet-backoff/", command)
			}
		})
	}
}

// TestKilledInSparse: files that a sparse checkout leaves out stay out.
func TestKilledInSparse(t *testing.T) {
	p, before := killed(t, func(p project) { p.git(p.root, "sparse-checkout", "set", "--no-cone", "/*", "!/staging/") })
	require.NoDirExists(t, filepath.Join(p.root, "staging"))
	p.ok(t, "hack/patchset.sh", "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.noLeftovers(t)
	p.ok(t, "hack/patchset.sh", "apply")
	p.ok(t, "hack/patchset.sh", "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

// TestKilledAndRead: commands that need the series do not take half of it.
func TestKilledAndRead(t *testing.T) {
	p, before := killed(t)
	p.fails(t, nil, []string{"was killed", "make reverse"}, "hack/build.sh")
	p.ok(t, "hack/patchset.sh", "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.noLeftovers(t)
}

// TestLocked: a lock that another git holds stays.
func TestLocked(t *testing.T) {
	for _, lock := range []string{"index.lock", "HEAD.lock", "config.lock", "refs/heads/" + branch + ".lock", "packed-refs.lock"} {
		t.Run(lock, func(t *testing.T) {
			p := newProject(t).clone(t)
			lock := filepath.Join(p.root, ".git", lock)
			for _, command := range []string{"apply", "reverse"} {
				before := p.snapshot(t, p.root)
				write(filepath.Dir(lock), map[string]string{filepath.Base(lock): ""})
				p.fails(t, nil, []string{lock + " exists"}, "hack/patchset.sh", command)
				require.NoError(t, os.Remove(lock))
				assert.Equal(t, before, p.snapshot(t, p.root))
				p.ok(t, "hack/patchset.sh", command)
			}
		})
	}
}

// TestKilledWhileGitRuns: the next command waits for the git that a killed one has left.
func TestKilledWhileGitRuns(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	out, err := p.try(gitBefore(t, `*\ checkout\ -q\ -b*`, `kill -KILL $PPID; sleep 1`), "hack/patchset.sh", "apply")
	require.Error(t, err, out)
	out = p.ok(t, "hack/patchset.sh", "reverse")
	assert.Contains(t, out, "Waiting for another apply, reverse or refresh")
	assert.Contains(t, out, "Removing "+branch)
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.noLeftovers(t)
}
