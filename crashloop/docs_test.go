// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file check README.md and the other pages that people write. A fenced
// block of such a page is one of these:
//
//	console  commands with what they print; a line "…" stands for any lines
//	sh       commands that TestDocs does not run; TestDocsCommands looks at them
//	yaml, go a file, if the first line is a comment with its name
//	text     an excerpt
//
// A block without a language is console if it begins with "$ ", else sh.
//
// A comment in the line before it has one of these forms:
//
//	stdin: FILE        the standard input of the command that follows the pipe
//	excerpt of FILE    FILE has these lines
//	figures from FILE… the figures of this table are in one of these files
//	checked by PATH    what is at PATH tests that this is right
const repository = ".."

// block is a fenced block, or a table that follows a comment.
type block struct {
	line                   int
	comment, lang, content string
	// start and end are the position of the content in the page.
	start, end int
}

var (
	fenced = regexp.MustCompile("(?m)^(?:<!-- (.*) -->\n)?```(.*)\n((?:.*\n)*?)```$")
	tables = regexp.MustCompile(`(?m)^<!-- (.*) -->\n((?:\|.*\n)+)`)
)

func blocksOf(page string) (blocks []block) {
	submatch := func(m []int, n int) string {
		if m[2*n] < 0 {
			return ""
		}
		return page[m[2*n]:m[2*n+1]]
	}
	for _, m := range fenced.FindAllStringSubmatchIndex(page, -1) {
		b := block{strings.Count(page[:m[6]], "\n"), submatch(m, 1), submatch(m, 2), submatch(m, 3), m[6], m[7]}
		switch {
		case b.lang == "" && strings.HasPrefix(b.content, "$ "):
			b.lang = "console"
		case b.lang == "":
			b.lang = "sh"
		}
		blocks = append(blocks, b)
	}
	for _, m := range tables.FindAllStringSubmatchIndex(page, -1) {
		blocks = append(blocks, block{strings.Count(page[:m[4]], "\n"), submatch(m, 1), "table", submatch(m, 2), m[4], m[5]})
	}
	return blocks
}

// docs returns all pages, written and generated, by their paths in the repository.
func docs(t *testing.T) (written, generated map[string]string) {
	t.Helper()
	written, generated = map[string]string{}, map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/results/*.md"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			name, err := filepath.Rel(repository, file)
			require.NoError(t, err)
			if name == "docs/deviations.md" || filepath.Dir(name) == "docs/results" {
				generated[name] = string(text)
			} else {
				written[name] = string(text)
			}
		}
	}
	return written, generated
}

// The pages show the real output of the commands. -update writes them again.
func TestDocs(t *testing.T) {
	root, err := filepath.Abs(repository)
	require.NoError(t, err)
	written, _ := docs(t)
	for name, page := range written {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			require.NoError(t, os.Symlink(filepath.Join(root, "examples"), "examples"))
			shift, updated := 0, page
			for _, b := range blocksOf(page) {
				file, isFile := strings.CutPrefix(strings.TrimPrefix(firstLine(b.content), "// "), "# ")
				switch b.lang {
				case "yaml", "go":
					require.True(t, isFile || b.lang == "go", "line %d: a file's first line is its name", b.line)
					require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
					require.NoError(t, os.WriteFile(file, []byte(b.content), 0o644))
				case "console":
					if err := sandboxHere(); err != nil && strings.Contains(b.content, "crashloop run ") {
						t.Logf("line %d: not run: %v", b.line, err)
						continue
					}
					got := consoleOutput(t, root, b)
					if *update && !strings.Contains(b.content, "\n…\n") {
						updated = updated[:b.start+shift] + got + updated[b.end+shift:]
						shift += len(got) - len(b.content)
						continue
					}
					// On a slow machine, --timeout may end a run before all of it has happened.
					for range 5 {
						if !strings.Contains(b.content, " --timeout ") || assert.ObjectsAreEqual(bySource(b.content), bySource(got)) {
							break
						}
						got = consoleOutput(t, root, b)
					}
					sameOutput(t, b, got)
				case "sh", "table", "mermaid":
				case "text":
					require.NotEmpty(t, b.comment, "line %d: an excerpt of what?", b.line)
				default:
					t.Errorf("line %d: a block in a language that no test knows: %q", b.line, b.lang)
				}
			}
			if updated != page {
				require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(updated), 0o644))
			}
		})
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// consoleOutput runs the commands of a block and returns the block with their output.
func consoleOutput(t *testing.T, root string, b block) string {
	t.Helper()
	var content strings.Builder
	for line := range strings.Lines(b.content) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		content.WriteString(line)
		command = strings.TrimSpace(command)
		if command == "go mod tidy && go run ." {
			content.WriteString(runProgram(t, root))
			continue
		}
		var stdin bytes.Buffer
		if file, ok := strings.CutPrefix(b.comment, "stdin: "); ok {
			data, err := os.ReadFile(filepath.Join(root, file))
			require.NoError(t, err)
			stdin.Write(data)
			_, command, _ = strings.Cut(command, " | ")
		}
		_, args, ok := strings.Cut(strings.Replace(command, "go run ./crashloop ", "crashloop ", 1), "crashloop ")
		require.True(t, ok, "line %d: no test runs %s", b.line, command)
		var output bytes.Buffer
		cache := t.TempDir()
		restore := setenv(t, "XDG_CACHE_HOME", cache) // Only for these commands, not for the go command.
		status := run(strings.Fields(strings.ReplaceAll(args, "'", "")), &stdin, &output, &output)
		restore()
		want := exitSucceeded
		if strings.Contains(command, " --timeout ") {
			want = exitTimeout
		}
		require.Equal(t, want, status, &output)
		content.WriteString(strings.ReplaceAll(output.String(), cache, "/home/user/.cache"))
		if status != exitSucceeded && strings.HasPrefix(command, "go run ") {
			fmt.Fprintf(&content, "exit status %d\n", status) // by go run
		}
	}
	// run ends with an empty line.
	return strings.TrimRight(content.String(), "\n") + "\n"
}

// setenv sets a variable of the environment until restore is called.
func setenv(t *testing.T, name, value string) (restore func()) {
	t.Helper()
	before, ok := os.LookupEnv(name)
	require.NoError(t, os.Setenv(name, value))
	return func() {
		if ok {
			os.Setenv(name, before)
		} else {
			os.Unsetenv(name)
		}
	}
}

// runProgram runs the program in the current directory with the modules of this repository and the versions
// that it requires: go mod tidy would ask the network for newer ones.
func runProgram(t *testing.T, root string) string {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, "examples/agent/go.mod"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("go.mod", bytes.ReplaceAll(mod, []byte("=> ../.."), []byte("=> "+root)), 0o644))
	sums, err := os.ReadFile(filepath.Join(root, "agent/go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("go.sum", sums, 0o644))
	cmd := exec.Command("go", "run", "-mod=mod", ".")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return string(output)
}

// sameOutput compares a block with the output of its commands.
func sameOutput(t *testing.T, b block, got string) {
	t.Helper()
	if strings.Contains(b.content, "crashloop run ") {
		require.Equal(t, bySource(b.content), bySource(got))
		return
	}
	if !strings.Contains(b.content, "\n…\n") {
		require.Equal(t, b.content, got)
		return
	}
	for _, part := range strings.Split(b.content, "…\n") {
		_, rest, ok := strings.Cut(got, part)
		require.True(t, ok, "line %d: what is printed does not have\n%s\nbut is\n%s", b.line, part, got)
		got = rest
	}
	require.Empty(t, got)
}

var (
	times  = regexp.MustCompile(`[0-9]+(\.[0-9]+)?( ms|s)\b`)
	spaces = regexp.MustCompile(` +`)
)

// bySource sorts lines by their container or pod, and by whether the container wrote
// them: their order among others is open. It removes times, and what differs on a slow
// machine: waits, which may be over before the next status, and whether the container main,
// which crashes, runs when its pod is stopped.
func bySource(text string) map[string][]string {
	lines := map[string][]string{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(times.ReplaceAllString(line, "TIME"), ", next restart in ")
		line = spaces.ReplaceAllString(strings.TrimSpace(line), " ")
		if strings.Contains(line, " Killing Stopping container main") {
			continue
		}
		source := ""
		if words := strings.SplitN(line, " ", 4); len(words) == 4 && words[0] == "TIME" {
			source = words[1]
			if words[2] == "|" {
				source += " |"
			}
		}
		lines[source] = append(lines[source], line)
	}
	return lines
}

// Every excerpt is in the file that the page names.
func TestDocsExcerpts(t *testing.T) {
	figure := regexp.MustCompile(`\b[0-9]+\.[0-9]+\b`)
	written, _ := docs(t)
	excerpts, figures := 0, 0
	for name, page := range written {
		for _, b := range blocksOf(page) {
			if file, ok := strings.CutPrefix(b.comment, "excerpt of "); ok {
				source, err := os.ReadFile(filepath.Join(repository, file))
				require.NoError(t, err, name)
				rest, ok := string(source), true
				for line := range strings.Lines(b.content) {
					_, rest, ok = strings.Cut(rest, line)
					require.True(t, ok, "%s:%d: %s does not have, after the lines before it, %s", name, b.line, file, line)
				}
				excerpts++
			}
			if files, ok := strings.CutPrefix(b.comment, "figures from "); ok {
				var sources []byte
				for _, file := range strings.Fields(files) {
					source, err := os.ReadFile(filepath.Join(repository, file))
					require.NoError(t, err, name)
					sources = append(sources, source...)
				}
				for row := range strings.Lines(b.content) {
					for _, cell := range strings.Split(row, "|")[2:] {
						for _, f := range figure.FindAllString(cell, -1) {
							if !strings.HasPrefix(strings.TrimSpace(cell), "v") {
								require.Regexp(t, `(^|[^0-9.])`+regexp.QuoteMeta(f)+`([^0-9.]|$)`, string(sources), "%s:%d", name, b.line)
								figures++
							}
						}
					}
				}
			}
			if path, ok := strings.CutPrefix(b.comment, "checked by "); ok {
				_, err := os.Stat(filepath.Join(repository, path))
				require.NoError(t, err, "%s:%d", name, b.line)
			}
		}
	}
	require.NotZero(t, excerpts)
	require.NotZero(t, figures)
}

// The targets of all links exist.
func TestDocsLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	written, generated := docs(t)
	heads := map[string][]string{}
	for _, pages := range []map[string]string{written, generated} {
		for name, page := range pages {
			heads[name] = anchors(page)
		}
	}
	for _, pages := range []map[string]string{written, generated} {
		for name, page := range pages {
			for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				path, anchor, _ := strings.Cut(m[1], "#")
				target := name
				if path != "" {
					target = filepath.Join(filepath.Dir(name), path)
				}
				_, err := os.Stat(filepath.Join(repository, target))
				require.NoError(t, err, "%s links to %s", name, m[1])
				if anchor != "" {
					require.Contains(t, heads[target], anchor, "%s links to %s", name, m[1])
				}
			}
		}
	}
}

// anchors returns the anchors that GitHub derives from the headings of a page.
func anchors(page string) (anchors []string) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	others := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		anchors = append(anchors, strings.ReplaceAll(others.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return anchors
}

// Pages for readers in a hurry are short.
func TestREADME(t *testing.T) {
	written, _ := docs(t)
	for name, lines := range map[string]int{"README.md": 130, "docs/plan.md": 120} {
		require.LessOrEqual(t, strings.Count(written[name], "\n"), lines, name)
	}
}

// docs/run.svg shows the commands and the output in docs/try.md.
func TestPicture(t *testing.T) {
	written, _ := docs(t)
	blocks := blocksOf(written["docs/try.md"])
	i := slices.IndexFunc(blocks, func(b block) bool { return b.lang == "console" })
	require.GreaterOrEqual(t, i, 0)
	picture := filepath.Join(repository, "docs/run.svg")
	want := drawTerminal(blocks[i].content)
	if *update {
		require.NoError(t, os.WriteFile(picture, []byte(want), 0o644))
	}
	got, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "go test -run 'TestDocs|TestPicture' ./crashloop -update writes it")
}

var cells = regexp.MustCompile(`\S+( \S+)*`)

// drawTerminal draws a text as an SVG picture of a terminal that is 100 columns wide.
func drawTerminal(text string) string {
	const columns, width, height, margin = 100, 8, 18, 16
	var rows []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for utf8.RuneCountInString(line) > columns {
			at := strings.LastIndexAny(string([]rune(line)[:columns]), " ,") + 1
			rows = append(rows, line[:at])
			line = "    " + line[at:]
		}
		rows = append(rows, line)
	}
	var b strings.Builder
	w, h := columns*width+2*margin, len(rows)*height+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">`+"\n", w, h)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(firstLine(text)))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", w, h)
	b.WriteString(`<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13" fill="#c9d1d9">` + "\n")
	command := true
	for i, row := range rows {
		style := ""
		if command = strings.HasPrefix(row, "$ ") || command && strings.HasPrefix(row, "    ") && !strings.HasPrefix(row, "     "); command {
			style = ` fill="#ffffff" font-weight="bold"`
		}
		// Words in columns get their own positions and lengths, for fonts of another
		// width.
		for _, m := range cells.FindAllStringIndex(row, -1) {
			fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%d"%s>%s</text>`+"\n", margin+utf8.RuneCountInString(row[:m[0]])*width, margin+13+i*height,
				utf8.RuneCountInString(row[m[0]:m[1]])*width, style, html.EscapeString(row[m[0]:m[1]]))
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}
