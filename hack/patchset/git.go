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
	"strings"
	"time"

	"golang.org/x/mod/semver"
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
	if err := need("git"); err != nil {
		return err
	}
	out, err := exec.Command("git", "version").Output()
	if err != nil {
		return fmt.Errorf("git version: %w", err)
	}
	v := regexp.MustCompile(`\d+\.\d+`).FindString(string(out))
	if v != "" && semver.Compare("v"+v, "v2.32") < 0 {
		return fmt.Errorf("git %s is too old: 2.32 or newer is needed", v)
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
	p.env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "GIT_") && !strings.HasPrefix(kv, "GIT_EXEC_PATH=")
	})
	p.env = append(p.env, "LC_ALL=C", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=:",
		"GIT_PAGER=cat", "GIT_COMMITTER_NAME="+identName, "GIT_COMMITTER_EMAIL="+identEmail, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)))
	for i, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		p.env = append(p.env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
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
	g.env = slices.Concat(g.env, env)
	return g
}

func (g git) input(s string) git {
	g.stdin = s
	return g
}

func (g git) command(args []string) *exec.Cmd {
	cmd := exec.Command("git", append([]string{"-C", g.dir}, args...)...)
	cmd.Env = slices.Concat(g.p.env, g.env)
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

// do runs git; run runs it for each of the commands in turn, whose arguments have no spaces.
func (g git) do(args ...string) error {
	_, err := g.bytes(args...)
	return err
}

func (g git) run(commands ...string) error {
	for _, c := range commands {
		if err := g.do(strings.Fields(c)...); err != nil {
			return err
		}
	}
	return nil
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

const (
	// Files are what they are, whatever the tree's own .gitattributes say.
	neutralAttributes = "* -text -ident -eol -filter -working-tree-encoding\n"
	// The file that names the repository from which another one borrows objects.
	alternates = ".git/objects/info/alternates"
)

// initialize makes an empty repository in g's directory.
func (g git) initialize() error {
	if err := os.MkdirAll(g.dir, 0o777); err != nil {
		return err
	}
	if err := g.run("init -q --template= -b base ."); err != nil {
		return err
	}
	return writeFile(filepath.Join(g.dir, ".git/info/attributes"), []byte(neutralAttributes), 0o666)
}

// borrow makes a repository in dir that uses the objects of g, with HEAD detached at commit. Nothing is written to g.
func (g git) borrow(dir, commit string) (git, error) {
	r := g.p.git(dir)
	if err := r.initialize(); err != nil {
		return r, err
	}
	paths, err := g.lines("rev-parse", "--path-format=absolute", "--git-path", "objects", "--git-path", "shallow")
	if err != nil {
		return r, err
	}
	err = writeFile(filepath.Join(dir, alternates), []byte(paths[0]+"\n"), 0o666)
	// Where g is shallow, this has to stop where it stops.
	if shallow, none := os.ReadFile(paths[1]); err == nil && none == nil {
		err = writeFile(filepath.Join(dir, ".git/shallow"), shallow, 0o666)
	}
	if err != nil {
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
		time.Sleep(50 * time.Millisecond)
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
		now := file{f[1], f[3]}
		if f[4] == "D" {
			now = file{}
		}
		files[fields[i+1]] = now
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
