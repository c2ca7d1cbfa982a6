// SPDX-License-Identifier: Apache-2.0

// Package git runs git with the same results on every machine.
package git

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// Git runs git in a directory.
type Git struct {
	ctx   context.Context
	Dir   string
	env   []string
	stdin string
}

// settings replace those of the user and of the machine: bytes and commits must be the same for everyone.
var settings = []string{
	"core.autocrlf=false", "core.safecrlf=false", "core.attributesFile=/dev/null", "core.hooksPath=/dev/null", "core.fsmonitor=false",
	"core.quotePath=false", "core.commentChar=#", "commit.gpgSign=false", "tag.gpgSign=false", "am.threeWay=false", "am.keepcr=false",
	"mailinfo.scissors=false", "apply.whitespace=nowarn", "apply.ignoreWhitespace=no", "advice.detachedHead=false",
	"init.defaultBranch=base", "i18n.commitEncoding=UTF-8", "i18n.logOutputEncoding=UTF-8", "gc.auto=0", "maintenance.auto=false",
}

// New returns a Git without a directory. When ctx is done, it starts no command.
func New(ctx context.Context) (Git, error) {
	out, err := exec.Command("git", "version").Output()
	if err != nil {
		return Git{}, sys.Error("missing on PATH: git", err.Error(), "git: on Debian or Ubuntu: apt-get install git")
	}
	v := regexp.MustCompile(`\d+\.\d+`).FindString(string(out))
	if v != "" && semver.Compare("v"+v, "v2.32") < 0 {
		return Git{}, fmt.Errorf("git %s is too old: 2.32 or newer is needed", v)
	}
	all := slices.Clone(settings)
	// This one is about permissions.
	safe := exec.Command("git", "config", "--get-all", "safe.directory")
	safe.Dir = "/"
	directories, _ := safe.Output()
	for d := range strings.Lines(string(directories)) {
		all = append(all, "safe.directory="+strings.TrimSpace(d))
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "GIT_") && !strings.HasPrefix(kv, "GIT_EXEC_PATH=")
	})
	// Without GIT_OPTIONAL_LOCKS=0, git status takes index.lock, and may be killed then.
	env = append(env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=:",
		"GIT_COMMITTER_NAME=kubelet-backoff", "GIT_COMMITTER_EMAIL=noreply@kubelet-backoff.invalid", fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(all)))
	for i, s := range all {
		key, value, _ := strings.Cut(s, "=")
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	return Git{ctx: ctx, env: env}, nil
}

// In returns a Git for another directory.
func (g Git) In(dir string) Git { return Git{ctx: g.ctx, env: g.env, Dir: dir} }

// With returns a Git with more environment variables.
func (g Git) With(env ...string) Git {
	g.env = slices.Concat(g.env, env)
	return g
}

// Input returns a Git whose commands read s.
func (g Git) Input(s string) Git {
	g.stdin = s
	return g
}

// Uninterrupted returns a Git that still starts commands when its context is done.
func (g Git) Uninterrupted() Git {
	g.ctx = context.WithoutCancel(g.ctx)
	return g
}

// Both returns what git prints to stdout and stderr, in that order. A Ctrl-C does not reach git: it would leave half of a
// checkout behind.
func (g Git) Both(args ...string) (out, said string, err error) {
	if err := context.Cause(g.ctx); err != nil {
		return "", "", err
	}
	cmd := exec.Command("git", append([]string{"-C", g.Dir}, args...)...)
	cmd.Env, cmd.Stdin = g.env, strings.NewReader(g.stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err != nil {
		err = sys.Error(fmt.Sprintf("git %.300s in %s: %v", strings.Join(args, " "), g.Dir, err), stdout.String()+stderr.String())
	}
	return stdout.String(), stderr.String(), err
}

// Out returns what git prints to stdout, without line feeds at the end.
func (g Git) Out(args ...string) (string, error) {
	out, _, err := g.Both(args...)
	return strings.TrimRight(out, "\n"), err
}

// Do runs git.
func (g Git) Do(args ...string) error {
	_, _, err := g.Both(args...)
	return err
}

// Run runs git with each line of arguments, until one fails.
func (g Git) Run(lines ...string) error {
	for _, line := range lines {
		if err := g.Do(strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// OK reports whether git succeeds.
func (g Git) OK(args ...string) bool { return g.Do(args...) == nil }

// Try returns what git prints, or "" if it fails.
func (g Git) Try(args ...string) string {
	out, err := g.Out(args...)
	if err != nil {
		return ""
	}
	return out
}

// Lines returns the lines that git prints.
func (g Git) Lines(args ...string) ([]string, error) {
	out, err := g.Out(args...)
	if out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), err
}

// Commit returns the commit that a revision names, or "" if there is none.
func (g Git) Commit(rev string) string {
	return g.Try("rev-parse", "-q", "--verify", rev+"^{commit}")
}

// mailOptions give the same bytes on every machine. With --sparse, git also takes a commit all of whose changes are left out.
var mailOptions = []string{"format-patch", "--stdout", "--always", "--sparse", "-1", "--zero-commit", "--no-signature", "-N", "--no-stat",
	"--no-attach", "--no-thread", "--no-cover-letter", "--no-base", "--no-notes", "--no-from", "--subject-prefix=PATCH", "--full-index", "-U3",
	"--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv",
	"--binary", "--src-prefix=a/", "--dst-prefix=b/", "-O/dev/null"}

// Mail returns a commit as a mail for `git am`, without its changes of these files.
func (g Git) Mail(commit string, without ...string) (string, error) {
	args := slices.Concat(mailOptions, []string{commit, "--", "."})
	for _, path := range without {
		args = append(args, ":(exclude,literal)"+path)
	}
	out, _, err := g.Both(args...)
	return out, err
}

// Changed returns the paths in which two trees differ, with what happened to each: "A" for added, "D" for deleted, or another letter.
func (g Git) Changed(from, to string) (map[string]string, error) {
	out, err := g.Out("diff-tree", "-r", "-z", "--name-status", "--no-renames", from, to)
	if err != nil {
		return nil, err
	}
	changed := map[string]string{}
	fields := strings.Split(out, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		changed[fields[i+1]] = fields[i]
	}
	return changed, nil
}

// Store writes a file into the repository, and returns its blob.
func (g Git) Store(content []byte) (string, error) {
	return g.Input(string(content)).Out("hash-object", "-w", "--no-filters", "--stdin")
}

// CommitIndex commits the index that GIT_INDEX_FILE names. It returns the parent if the trees are equal.
func (g Git) CommitIndex(parent, text string, env ...string) (string, error) {
	tree, err := g.Out("write-tree")
	if err != nil {
		return "", err
	}
	if now, err := g.Out("rev-parse", parent+"^{tree}"); err != nil || now == tree {
		return parent, err
	}
	return g.With(env...).Input(text).Out("commit-tree", tree, "-p", parent)
}
