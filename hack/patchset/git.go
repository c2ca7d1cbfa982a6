// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	identName  = "kubelet-backoff"
	identEmail = "noreply@kubelet-backoff.invalid"
	// The time of commits that stand for a release.
	releaseDate = "@946684800 +0000"
)

// needGit makes every git call independent of the user's and the machine's git configuration: the bytes and the commits
// must be the same for everyone. safe.directory alone is carried over, because it is about permission.
func (p *program) needGit() error {
	if p.neutralGit {
		return nil
	}
	if err := need("git"); err != nil {
		return err
	}
	out, err := exec.Command("git", "version").Output()
	if err != nil {
		return fmt.Errorf("git version: %w", err)
	}
	v := strings.TrimPrefix(strings.TrimSpace(string(out)), "git version ")
	if m := regexp.MustCompile(`^(\d+)\.(\d+)`).FindStringSubmatch(v); m != nil {
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi(m[2])
		if major < 2 || major == 2 && minor < 32 {
			return fail(fmt.Sprintf("git %s is too old: 2.32 or newer is needed", v))
		}
	}
	safe := exec.Command("git", "config", "--get-all", "safe.directory")
	safe.Dir = "/"
	directories, _ := safe.Output()

	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GIT_") || strings.HasPrefix(kv, "GIT_EXEC_PATH=") {
			p.env = append(p.env, kv)
		}
	}
	p.env = setEnv(p.env, "LC_ALL=C", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=:",
		"GIT_PAGER=cat", "GIT_COMMITTER_NAME="+identName, "GIT_COMMITTER_EMAIL="+identEmail)
	settings := []string{
		"core.autocrlf=false", "core.safecrlf=false", "core.attributesFile=/dev/null", "core.hooksPath=/dev/null", "core.fsmonitor=false",
		"core.quotePath=false", "core.commentChar=#", "commit.gpgSign=false", "tag.gpgSign=false", "am.threeWay=false", "am.keepcr=false",
		"mailinfo.scissors=false", "apply.whitespace=nowarn", "apply.ignoreWhitespace=no", "advice.detachedHead=false",
		"init.defaultBranch=base", "i18n.commitEncoding=UTF-8", "i18n.logOutputEncoding=UTF-8", "gc.auto=0", "maintenance.auto=false",
	}
	for _, d := range strings.Split(strings.TrimSpace(string(directories)), "\n") {
		if d != "" {
			settings = append(settings, "safe.directory="+d)
		}
	}
	for i, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		p.env = append(p.env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	p.env = append(p.env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)))
	p.neutralGit = true
	return nil
}

// git runs git in a directory.
type git struct {
	p     *program
	dir   string
	env   []string // besides the program's
	stdin string
}

func (p *program) git(dir string) git { return git{p: p, dir: dir} }

func (g git) with(env ...string) git {
	g.env = append(slices.Clone(g.env), env...)
	return g
}

func (g git) input(s string) git {
	g.stdin = s
	return g
}

func (g git) command(args []string) *exec.Cmd {
	cmd := exec.Command("git", append([]string{"-C", g.dir}, args...)...)
	cmd.Env = setEnv(g.p.env, g.env...)
	cmd.Stdin = strings.NewReader(g.stdin)
	return cmd
}

// bytes is what git prints. A command is not ended by a signal, because it would leave its locks behind, but no other
// begins afterwards.
func (g git) bytes(args ...string) ([]byte, error) {
	if err := context.Cause(g.p.ctx); err != nil {
		return nil, err
	}
	cmd := g.command(args)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if cause := context.Cause(g.p.ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return out.Bytes(), fail(fmt.Sprintf("git %s in %s: %v", strings.Join(args, " "), g.dir, err), out.String()+errOut.String())
	}
	return out.Bytes(), nil
}

func (g git) out(args ...string) (string, error) {
	b, err := g.bytes(args...)
	return strings.TrimRight(string(b), "\n"), err
}

func (g git) do(args ...string) error {
	_, err := g.bytes(args...)
	return err
}

func (g git) ok(args ...string) bool { return g.command(args).Run() == nil }

// try is what git prints, or nothing if it fails.
func (g git) try(args ...string) string {
	b, err := g.command(args).Output()
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(b), "\n")
}

// lines are the lines that git prints.
func (g git) lines(args ...string) ([]string, error) {
	s, err := g.out(args...)
	if s == "" {
		return nil, err
	}
	return strings.Split(s, "\n"), err
}

// commitID is the commit that a revision names; nothing if there is none.
func (g git) commitID(rev string) string {
	return g.try("rev-parse", "-q", "--verify", rev+"^{commit}")
}

// neutralAttributes makes files what they are, whatever the tree's own .gitattributes say.
func neutralAttributes(gitDir string) error {
	return writeFile(filepath.Join(gitDir, "info", "attributes"), []byte("* -text -ident -eol -filter -working-tree-encoding\n"), 0o666)
}

// borrow makes a repository in dir that uses the objects of g, with HEAD detached at commit. Nothing is written to g.
func (g git) borrow(dir, commit string) (git, error) {
	r := g.p.git(dir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return r, err
	}
	if err := r.do("init", "-q", "--template=", "."); err != nil {
		return r, err
	}
	gitDir := filepath.Join(dir, ".git")
	for from, to := range map[string]string{"objects": "objects/info/alternates", "shallow": "shallow"} {
		path, err := g.out("rev-parse", "--git-path", from)
		if err != nil {
			return r, err
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(g.dir, path)
		}
		data := []byte(path + "\n")
		// Where g is shallow, this has to stop where it stops.
		if from == "shallow" {
			if data, err = os.ReadFile(path); err != nil {
				continue
			}
		}
		if err := writeFile(filepath.Join(gitDir, to), data, 0o666); err != nil {
			return r, err
		}
	}
	if err := neutralAttributes(gitDir); err != nil {
		return r, err
	}
	return r, r.do("update-ref", "--no-deref", "HEAD", commit)
}

// release commits what is in the index as the release itself.
func (g git) release(message string) error {
	return g.with("GIT_AUTHOR_NAME="+identName, "GIT_AUTHOR_EMAIL="+identEmail, "GIT_AUTHOR_DATE="+releaseDate, "GIT_COMMITTER_DATE="+releaseDate).
		do("commit", "-q", "--no-verify", "-m", message)
}

// mailOptions make the same bytes on every machine.
var (
	diffOptions = []string{"--full-index", "-U1", "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic", "--no-renames",
		"--no-color", "--no-ext-diff", "--no-textconv", "--binary", "--src-prefix=a/", "--dst-prefix=b/"}
	mailOptions = append([]string{"--zero-commit", "--no-signature", "-N", "--no-stat", "--no-attach", "--no-thread", "--no-cover-letter",
		"--no-base", "--no-notes", "--no-from", "--subject-prefix=PATCH"}, diffOptions...)
)

// mail is a commit as a mail that `git am` takes.
func (g git) mail(commit string) (string, error) {
	b, err := g.bytes(append(append([]string{"format-patch", "--stdout", "-1"}, mailOptions...), commit)...)
	return string(b), err
}

// am is plain `git am` of one mail, with everything that could vary fixed.
func (g git) am(file string) error {
	err := g.do("am", "-q", "--no-3way", "--no-keep-cr", "--no-scissors", "--no-gpg-sign", "--committer-date-is-author-date", file)
	if err != nil {
		// A Ctrl-C that ended git is on its way here, too.
		select {
		case <-g.p.ctx.Done():
			return context.Cause(g.p.ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return err
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

// explainAm says which files and hunks git could not apply.
func explainAm(said string) string {
	var lines []string
	for _, e := range amErrors {
		for _, m := range e.pattern.FindAllStringSubmatchIndex(said, -1) {
			lines = append(lines, string(e.pattern.ExpandString(nil, e.words, said, m)))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// file is a file's content in git.
type file struct{ mode, blob string }

// files are the files of a commit or tree, by path.
func (g git) files(rev string, paths ...string) (map[string]file, error) {
	out, err := g.bytes(append([]string{"--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", rev, "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	for _, entry := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		meta, path, ok := strings.Cut(entry, "\t")
		if f := strings.Fields(meta); ok && len(f) == 3 {
			files[path] = file{f[0], f[2]}
		}
	}
	return files, nil
}

// changed are the paths in which two trees differ, with what they are in the second; a path that is gone has no blob.
func (g git) changed(from, to string) (map[string]file, error) {
	out, err := g.bytes("diff-tree", "-r", "-z", "--no-renames", from, to)
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	fields := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		f := strings.Fields(fields[i]) // :old-mode new-mode old-blob new-blob status
		if len(f) != 5 {
			return nil, fmt.Errorf("git diff-tree in %s: cannot read %q", g.dir, fields[i])
		}
		if f[4] == "D" {
			files[fields[i+1]] = file{}
		} else {
			files[fields[i+1]] = file{f[1], f[3]}
		}
	}
	return files, nil
}

// store writes content into the repository.
func (g git) store(content []byte) (string, error) {
	return g.input(string(content)).out("hash-object", "-w", "--no-filters", "--stdin")
}

// stage puts files into the index that GIT_INDEX_FILE names; those without a blob leave it.
func (g git) stage(files map[string]file) error {
	// A file may take the place of a directory, or the other way round.
	var gone, in strings.Builder
	for path, f := range files {
		if f.blob == "" {
			fmt.Fprintf(&gone, "0 %040d\t%s\x00", 0, path)
		} else {
			fmt.Fprintf(&in, "%s %s\t%s\x00", f.mode, f.blob, path)
		}
	}
	return g.input(gone.String()+in.String()).do("update-index", "-z", "--index-info")
}
