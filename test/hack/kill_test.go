// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
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

// halfCheckout is what git has done at the end of a checkout: all but the branch and HEAD.
const halfCheckout = `"$git" -C "$2" read-tree -m -u HEAD "$("$git" -C "$2" rev-parse "refs/kubelet-backoff/pending-$(basename "$("$git" -C "$2" rev-parse --absolute-git-dir)")")"; `

const kill = "kill -KILL $PPID; exit 1"

// killed returns a clone in which an apply was killed at the end of its checkout.
func killed(t *testing.T, p project) {
	t.Helper()
	out, err := p.try(gitBefore(t, `*\ checkout\ -q\ *`, halfCheckout+kill), "hack/patchset.sh", "apply")
	require.Error(t, err, out)
	require.Contains(t, read(filepath.Join(p.root, kubelet)), "patched")
}

// TestKilled kills apply and reverse at any time. The next command succeeds, and nothing is left.
func TestKilled(t *testing.T) {
	long(t)
	const kills = 60
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			run := func(command string) time.Duration {
				start := time.Now()
				p.patchset(t, command)
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
				cmd := p.command([]string{"KB_ROOT=" + p.dir}, filepath.Join(shared.programs, "patchset"), command)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				require.NoError(t, cmd.Start())
				after := time.Duration(random.Int64N(int64(took[command])))
				time.Sleep(after)
				_ = syscall.Kill(cmd.Process.Pid, syscall.SIGKILL)
				if cmd.Wait() == nil {
					// The measured run was slower than this one.
					ended++
					took[command] = after
				}
				what := fmt.Sprintf("%d: %s, killed after %v", n, command, after)
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

// TestKilledBeforeEachCommand kills the program before each git command in the tree that may write there, and lets git write a part of
// a checkout.
func TestKilledBeforeEachCommand(t *testing.T) {
	long(t)
	const readers = "@(apply|cat-file|commit-tree|describe|diff-index|diff-tree|for-each-ref|format-patch|hash-object|log|ls-files|ls-tree|merge-base|rev-list|rev-parse|show|status|symbolic-ref|update-index|write-tree|--literal-pathspecs)"
	for name, kind := range kinds {
		for _, command := range []string{"apply", "reverse"} {
			for how, what := range map[string]string{"": kill, " and half a checkout": `[[ $3 != checkout ]] || { ` + halfCheckout + `} ; ` + kill} {
				t.Run(command+" in a "+name+how, func(t *testing.T) {
					p := kind(newProject(t), t)
					before := p.snapshot(t, p.root)
					for n := 1; ; n++ {
						if command == "reverse" {
							p.patchset(t, "apply")
						}
						count := filepath.Join(t.TempDir(), "count")
						env := gitAt(t, fmt.Sprintf(`$2 == %q* && $3 != %s && $* != *\ --get\ * ]] && echo x >>%q && [[ $(wc -l <%q) == %d`, p.root, readers, count, count, n), what)
						out, err := p.try(env, "hack/patchset.sh", command)
						if n%2 == 0 {
							p.patchset(t, "apply")
						}
						p.patchset(t, "reverse")
						require.Equal(t, before, p.snapshot(t, p.root), n)
						p.noLeftovers(t)
						if err == nil {
							t.Logf("killed before each of %d commands", n-1)
							require.Greater(t, n, 3, out)
							return
						}
					}
				})
			}
		}
	}
}

// TestInterrupted: after Ctrl-C during a checkout, git ends it.
func TestInterrupted(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	cmd := p.command(gitBefore(t, `*\ checkout\ -q\ *`, halfCheckout+`kill -INT -$(ps -o pgid= $PPID | tr -d ' '); "$git" -C "$2" read-tree -m -u "$("$git" -C "$2" rev-parse HEAD)"`), "hack/patchset.sh", "apply")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	require.Error(t, err, string(out))
	assert.Equal(t, 130, cmd.ProcessState.ExitCode(), string(out))
	p.patchset(t, "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.noLeftovers(t)
}

// TestEditedAfterKill: what the user has edited since is not lost.
func TestEditedAfterKill(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	killed(t, p)
	beside := filepath.Join(filepath.Dir(decided), "mine.txt")
	edit(t, filepath.Join(p.root, kubelet), "patched", "mine")
	write(p.root, map[string]string{decided: "mine", beside: "mine"})
	edit(t, filepath.Join(p.root, "go.work"), "go 1.22.0", "go 1.23.0")
	for _, command := range []string{"apply", "reverse", "refresh", "export"} {
		out, err := p.try(nil, "hack/patchset.sh", command)
		require.Error(t, err, out)
		for _, words := range []string{"was killed", kubelet, decided, "Move them away"} {
			assert.Contains(t, out, words, command)
		}
		assert.NotContains(t, out, "go.work")
		assert.NotContains(t, out, "mine.txt")
		assert.Contains(t, read(filepath.Join(p.root, kubelet)), "mine")
	}
	require.NoError(t, os.Rename(filepath.Join(p.root, decided), filepath.Join(p.root, "kept")))
	p.fails(t, nil, []string{kubelet}, "hack/patchset.sh", "reverse")
	require.NoError(t, os.Rename(filepath.Join(p.root, kubelet), filepath.Join(p.root, "kept too")))
	p.patchset(t, "reverse")
	assert.Contains(t, read(filepath.Join(p.root, "kept too")), "mine")
	assert.Equal(t, "mine", read(filepath.Join(p.root, "kept")))
	assert.Equal(t, "M go.work", p.git(p.root, "status", "--porcelain", "--untracked-files=no"))
	p.git(p.root, "checkout", "-q", "go.work")
	for _, file := range []string{beside, "kept", "kept too", filepath.Dir(beside)} {
		require.NoError(t, os.Remove(filepath.Join(p.root, file)))
	}
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.noLeftovers(t)
}

// TestMovedAfterKill: the user commits before the next command. The new commit stays, and the rest of the killed command goes.
func TestMovedAfterKill(t *testing.T) {
	for name, tc := range map[string]struct{ path, old, new string }{
		"a file of the user":   {"go.work", "go 1.22.0", "go 1.23.0"},
		"a file of the series": {kubelet, "// one", "// mine"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).clone(t)
			killed(t, p)
			edit(t, filepath.Join(p.root, tc.path), tc.old, tc.new)
			p.git(p.root, "commit", "-q", "-m", "mine", "--", tc.path)
			head, theirs := p.git(p.root, "rev-parse", "HEAD"), read(filepath.Join(p.root, decided))
			write(p.root, map[string]string{decided: "mine"})
			for range 2 {
				p.fails(t, nil, []string{"was killed", decided, "Move them away"}, "hack/patchset.sh", "reverse")
			}
			write(p.root, map[string]string{decided: theirs})
			p.patchset(t, "reverse")
			assert.Equal(t, head, p.git(p.root, "rev-parse", "main"))
			assert.Empty(t, p.git(p.root, "status", "--porcelain", "--ignored"))
			assert.NoFileExists(t, filepath.Join(p.root, decided))
			assert.Contains(t, read(filepath.Join(p.root, tc.path)), tc.new)
			assert.Empty(t, p.git(p.root, "branch", "--list", branch))
			p.noLeftovers(t)
		})
	}
}

// TestPrunedAfterKill: git keeps the commits that the next command needs.
func TestPrunedAfterKill(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			killed(t, p)
			// In the main worktree, also if the command was killed in another one.
			p.git(filepath.Dir(p.git(p.root, "rev-parse", "--path-format=absolute", "--git-common-dir")), "gc", "-q", "--prune=now")
			p.patchset(t, "reverse")
			assert.Equal(t, before, p.snapshot(t, p.root))
			p.noLeftovers(t)
		})
	}
}

// TestKilledInSparse: files that a sparse checkout leaves out stay out.
func TestKilledInSparse(t *testing.T) {
	p := newProject(t).clone(t)
	p.git(p.root, "sparse-checkout", "set", "--no-cone", "/*", "!/staging/", "/"+base)
	before := p.snapshot(t, p.root)
	require.NoFileExists(t, filepath.Join(p.root, "staging/src/k8s.io/client-go/go.mod"))
	killed(t, p)
	p.patchset(t, "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.roundTrip(t)
}

// TestKilledAndRead: commands that need the series do not take half of it.
func TestKilledAndRead(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	killed(t, p)
	p.fails(t, nil, []string{"error: "}, "hack/build.sh")
	p.patchset(t, "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

// TestLocked: a lock that another git holds, or a killed one has left, stays. Without it, the next command succeeds.
func TestLocked(t *testing.T) {
	for _, name := range []string{"index.lock", "HEAD.lock", "config.lock", "refs/heads/" + branch + ".lock"} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).clone(t)
			before := p.snapshot(t, p.root)
			lock := filepath.Join(p.root, ".git", name)
			for _, command := range []string{"apply", "reverse"} {
				if command == "reverse" && name == "config.lock" {
					p.patchset(t, command)
					continue // it only removes a section
				}
				write(filepath.Dir(lock), map[string]string{filepath.Base(lock): ""})
				p.fails(t, nil, []string{name}, "hack/patchset.sh", command)
				require.FileExists(t, lock)
				require.NoError(t, os.Remove(lock))
				p.patchset(t, command)
			}
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
	t.Run("by a git that was killed", func(t *testing.T) {
		p := newProject(t).clone(t)
		before := p.snapshot(t, p.root)
		lock := filepath.Join(p.root, ".git/index.lock")
		out, err := p.try(gitBefore(t, `*\ checkout\ -q\ *`, halfCheckout+`touch "$2/.git/index.lock"; `+kill), "hack/patchset.sh", "apply")
		require.Error(t, err, out)
		p.fails(t, nil, []string{"index.lock", "remove its lock"}, "hack/patchset.sh", "reverse")
		require.NoError(t, os.Remove(lock))
		p.patchset(t, "reverse")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
}

// TestKilledWhileGitRuns: the next command waits for the git that a killed one has left.
func TestKilledWhileGitRuns(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	out, err := p.try(gitBefore(t, `*\ checkout\ -q\ *`, `kill -KILL $PPID; sleep 1`), "hack/patchset.sh", "apply")
	require.Error(t, err, out)
	out = p.patchset(t, "reverse")
	assert.Contains(t, out, "Waiting for another apply, reverse or refresh")
	assert.Contains(t, out, branch+" is deleted")
	assert.Equal(t, before, p.snapshot(t, p.root))
	p.noLeftovers(t)
}

// TestKilledOnAnotherBase: the branch has not moved, so its state is that of the apply before.
func TestKilledOnAnotherBase(t *testing.T) {
	p := newProject(t).clone(t)
	p.git(p.root, "checkout", "-q", "-b", "fork")
	p.patchset(t, "apply")
	branch := strings.TrimSpace(p.git(p.root, "branch", "--show-current"))
	p.git(p.root, "checkout", "-q", "-")
	p.git(p.root, "checkout", "-q", "-b", "other")
	edit(t, filepath.Join(p.root, "go.work"), "use", "// x\nuse")
	p.git(p.root, "commit", "-q", "-a", "-m", "other")
	out, err := p.try(gitAt(t, "$3 == update-ref", kill), "hack/patchset.sh", "apply")
	require.Error(t, err, out)
	p.git(p.root, "checkout", "-q", branch)
	assert.Contains(t, p.patchset(t, "refresh"), "Already applied")
	p.patchset(t, "reverse")
	assert.Equal(t, "fork", strings.TrimSpace(p.git(p.root, "branch", "--show-current")))
}
