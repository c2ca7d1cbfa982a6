// SPDX-License-Identifier: Apache-2.0

// Package git runs git with the same results on every machine.
package git

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/process"
)

const (
	identName      = "kubelet-backoff"
	CommitterEmail = "noreply@kubelet-backoff.invalid"
	// releaseDate is the time of the commits that contain a release.
	releaseDate = "@946684800 +0000"
)

// Environment returns the environment variables that make git independent of the user's and the machine's configuration: the
// bytes and the commits must be the same for everyone. It keeps only safe.directory, which is about permissions.
func Environment() ([]string, error) {
	if err := process.Need("git"); err != nil {
		return nil, err
	}
	out, err := exec.Command("git", "version").Output()
	if err != nil {
		return nil, fmt.Errorf("git version: %w", err)
	}
	v := regexp.MustCompile(`\d+\.\d+`).FindString(string(out))
	if v != "" && semver.Compare("v"+v, "v2.32") < 0 {
		return nil, fmt.Errorf("git %s is too old: 2.32 or newer is needed", v)
	}
	settings := []string{
		"core.autocrlf=false", "core.safecrlf=false", "core.attributesFile=/dev/null", "core.hooksPath=/dev/null", "core.fsmonitor=false",
		"core.quotePath=false", "core.commentChar=#", "commit.gpgSign=false", "tag.gpgSign=false", "am.threeWay=false", "am.keepcr=false",
		"mailinfo.scissors=false", "apply.whitespace=nowarn", "apply.ignoreWhitespace=no", "advice.detachedHead=false",
		"init.defaultBranch=base", "i18n.commitEncoding=UTF-8", "i18n.logOutputEncoding=UTF-8", "gc.auto=0", "maintenance.auto=false",
	}
	safe := exec.Command("git", "config", "--get-all", "safe.directory")
	safe.Dir = "/"
	directories, _ := safe.Output()
	for d := range strings.Lines(string(directories)) {
		settings = append(settings, "safe.directory="+strings.TrimSpace(d))
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "GIT_") && !strings.HasPrefix(kv, "GIT_EXEC_PATH=")
	})
	// Without GIT_OPTIONAL_LOCKS=0, git status takes index.lock, and may be killed then.
	env = append(env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=:",
		"GIT_PAGER=cat", "GIT_COMMITTER_NAME="+identName, "GIT_COMMITTER_EMAIL="+CommitterEmail, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)))
	for i, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	return env, nil
}

// Git runs git in a directory.
type Git struct {
	ctx   context.Context
	base  []string // as Environment returns it
	Dir   string
	env   []string // besides base
	stdin string
}

// New returns a Git without a directory. When ctx is done, it starts no command.
func New(ctx context.Context, environment []string) Git { return Git{ctx: ctx, base: environment} }

func (g Git) In(dir string) Git { return Git{ctx: g.ctx, base: g.base, Dir: dir} }

func (g Git) WithContext(ctx context.Context) Git {
	g.ctx = ctx
	return g
}

func (g Git) With(env ...string) Git {
	g.env = slices.Concat(g.env, env)
	return g
}

func (g Git) Input(s string) Git {
	g.stdin = s
	return g
}

func (g Git) Command(args []string) *exec.Cmd {
	cmd := exec.Command("git", append([]string{"-C", g.Dir}, args...)...)
	cmd.Env = slices.Concat(g.base, g.env)
	cmd.Stdin = strings.NewReader(g.stdin)
	return cmd
}

// Bytes returns what git prints. A signal does not stop a running command, because git would leave its locks behind.
func (g Git) Bytes(args ...string) ([]byte, error) {
	if err := context.Cause(g.ctx); err != nil {
		return nil, err
	}
	cmd := g.Command(args)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if cause := context.Cause(g.ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return out.Bytes(), console.Error(fmt.Sprintf("git %s in %s: %v", strings.Join(args, " "), g.Dir, err), out.String()+errOut.String())
	}
	return out.Bytes(), nil
}

func (g Git) Out(args ...string) (string, error) {
	b, err := g.Bytes(args...)
	return strings.TrimRight(string(b), "\n"), err
}

// Do runs git.
func (g Git) Do(args ...string) error {
	_, err := g.Bytes(args...)
	return err
}

func (g Git) Run(commands ...string) error {
	for _, c := range commands {
		if err := g.Do(strings.Fields(c)...); err != nil {
			return err
		}
	}
	return nil
}

func (g Git) OK(args ...string) bool { return g.Command(args).Run() == nil }

// Try returns what git prints, or "" if it fails.
func (g Git) Try(args ...string) string {
	b, err := g.Command(args).Output()
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(b), "\n")
}

// Lines returns the lines that git prints.
func (g Git) Lines(args ...string) ([]string, error) {
	s, err := g.Out(args...)
	if s == "" {
		return nil, err
	}
	return strings.Split(s, "\n"), err
}

// CommitID returns the commit that a revision names, or "" if there is none.
func (g Git) CommitID(rev string) string {
	return g.Try("rev-parse", "-q", "--verify", rev+"^{commit}")
}

const (
	// NeutralAttributes override the tree's .gitattributes, so that git does not convert files.
	NeutralAttributes = "* -text -ident -eol -filter -working-tree-encoding\n"
	// Alternates is the file that names the repository from which another one borrows objects.
	Alternates = ".git/objects/info/alternates"
)

// Initialize makes an empty repository in g's directory.
func (g Git) Initialize() error {
	if err := os.MkdirAll(g.Dir, 0o777); err != nil {
		return err
	}
	if err := g.Run("init -q --template= -b base ."); err != nil {
		return err
	}
	return fileutil.Write(filepath.Join(g.Dir, ".git/info/attributes"), []byte(NeutralAttributes), 0o666)
}

// Borrow makes a repository in dir that uses the objects of g, with HEAD detached at commit. It writes nothing to g.
func (g Git) Borrow(dir, commit string) (Git, error) {
	r := g.In(dir)
	if err := r.Initialize(); err != nil {
		return r, err
	}
	paths, err := g.Lines("rev-parse", "--path-format=absolute", "--git-path", "objects", "--git-path", "shallow")
	if err != nil {
		return r, err
	}
	err = fileutil.Write(filepath.Join(dir, Alternates), []byte(paths[0]+"\n"), 0o666)
	// If g is shallow, the new repository must be shallow at the same commits.
	if shallow, none := os.ReadFile(paths[1]); err == nil && none == nil {
		err = fileutil.Write(filepath.Join(dir, ".git/shallow"), shallow, 0o666)
	}
	if err != nil {
		return r, err
	}
	return r, r.Do("update-ref", "--no-deref", "HEAD", commit)
}

// Take copies the objects of the commits between base and tip from r. It needs no base: a shallow repository can take them.
func (g Git) Take(r Git, base, tip string) error {
	pack, err := r.Input(tip+"\n^"+base+"\n").Bytes("pack-objects", "-q", "--revs", "--stdout")
	if err != nil {
		return err
	}
	return g.Input(string(pack)).Do("unpack-objects", "-q")
}

// Release commits the index as the release itself.
func (g Git) Release(message string) error {
	return g.With("GIT_AUTHOR_NAME="+identName, "GIT_AUTHOR_EMAIL="+CommitterEmail, "GIT_AUTHOR_DATE="+releaseDate, "GIT_COMMITTER_DATE="+releaseDate).
		Do("commit", "-q", "--no-verify", "-m", message)
}

// DiffOptions and mailOptions give the same bytes on every machine.
var (
	DiffOptions = []string{"--full-index", "-U3", "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic", "--no-renames",
		"--no-color", "--no-ext-diff", "--no-textconv", "--binary", "--src-prefix=a/", "--dst-prefix=b/"}
	mailOptions = append([]string{"--zero-commit", "--no-signature", "-N", "--no-stat", "--no-attach", "--no-thread", "--no-cover-letter",
		"--no-base", "--no-notes", "--no-from", "--subject-prefix=PATCH"}, DiffOptions...)
)

// Mail returns a commit as a mail for `git am`.
func (g Git) Mail(commit string) (string, error) {
	b, err := g.Bytes(append(append([]string{"format-patch", "--stdout", "-1"}, mailOptions...), commit)...)
	return string(b), err
}

var amErrors = []struct {
	pattern *regexp.Regexp
	words   string
}{
	{regexp.MustCompile(`(?m)^error: patch failed: (.*):(\d+)$`), "$1: the hunk at line $2 does not fit"},
	{regexp.MustCompile(`(?m)^error: (.*): already exists in (?:index|working directory)$`), "$1: the patch creates it, but it exists"},
	{regexp.MustCompile(`(?m)^error: (.*): (?:does not exist in index|No such file or directory)$`), "$1: the patch changes it, but it does not exist"},
	{regexp.MustCompile(`(?m)^error: (corrupt patch at line .*)$`), "$1"},
}

// ExplainAm returns, from git's output, which files and hunks git could not apply.
func ExplainAm(said string) string {
	var lines []string
	for _, e := range amErrors {
		for _, m := range e.pattern.FindAllStringSubmatchIndex(said, -1) {
			lines = append(lines, string(e.pattern.ExpandString(nil, e.words, said, m)))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// File is the mode of a file and its blob in git. A missing file has none.
type File struct{ Mode, Blob string }

// Files returns the files of a commit or tree, by path.
func (g Git) Files(rev string, paths ...string) (map[string]File, error) {
	out, err := g.Bytes(append([]string{"--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", rev, "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	files := map[string]File{}
	for _, entry := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		meta, path, ok := strings.Cut(entry, "\t")
		if f := strings.Fields(meta); ok && len(f) == 3 {
			files[path] = File{f[0], f[2]}
		}
	}
	return files, nil
}

// Changed returns the paths in which two trees differ, with their files in the second tree. A removed file has no blob.
func (g Git) Changed(from, to string) (map[string]File, error) {
	out, err := g.Bytes("diff-tree", "-r", "-z", "--no-renames", from, to)
	if err != nil {
		return nil, err
	}
	files := map[string]File{}
	fields := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		f := strings.Fields(fields[i]) // :old-mode new-mode old-blob new-blob status
		if len(f) != 5 {
			return nil, fmt.Errorf("git diff-tree in %s: cannot read %q", g.Dir, fields[i])
		}
		now := File{f[1], f[3]}
		if f[4] == "D" {
			now = File{}
		}
		files[fields[i+1]] = now
	}
	return files, nil
}

// Store writes content into the repository and returns its blob.
func (g Git) Store(content []byte) (string, error) {
	return g.Input(string(content)).Out("hash-object", "-w", "--no-filters", "--stdin")
}

// Stage puts files into the index that GIT_INDEX_FILE names, and removes those without a blob.
func (g Git) Stage(files map[string]File) error {
	// Removals come first, because a file may replace a directory, or a directory a file.
	var gone, in strings.Builder
	for path, f := range files {
		if f.Blob == "" {
			fmt.Fprintf(&gone, "0 %040d\t%s\x00", 0, path)
		} else {
			fmt.Fprintf(&in, "%s %s\t%s\x00", f.Mode, f.Blob, path)
		}
	}
	return g.Input(gone.String()+in.String()).Do("update-index", "-z", "--index-info")
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
