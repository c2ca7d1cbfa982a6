// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Everything that pages and workflows run exists: targets and variables of make, scripts, the commands
// and flags of crashloop and of hack/patchset.sh, and the programs of go run with their flags.
func TestDocsCommands(t *testing.T) {
	written, _ := docs(t)
	workflows, err := filepath.Glob(filepath.Join(repository, ".github/workflows/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, workflows)
	for _, file := range workflows {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^ *-? run: (.*)$`).FindAllStringSubmatch(string(text), -1) {
			written[file] += "```sh\n" + m[1] + "\n```\n"
		}
	}
	makefile := repositoryFile(t, "Makefile")
	programs := map[string]string{"patchset": repositoryFile(t, "hack/patchset/main.go"), "pages": repositoryFile(t, "hack/pages/main.go")}
	checks := []struct {
		command *regexp.Regexp
		check   func(t *testing.T, m []string)
	}{
		{regexp.MustCompile(`(?m)(?:^|&& |; |\S=\S+ )make ([a-z][a-z0-9-]*)((?: [A-Z_]+=\S+)*)`), func(t *testing.T, m []string) {
			require.Regexp(t, `(?m)^`+m[1]+`:`, makefile, m[0])
			for _, variable := range strings.Fields(m[2]) {
				name, _, _ := strings.Cut(variable, "=")
				require.Contains(t, makefile, "\n\t  "+name+" ", m[0])
			}
		}},
		{regexp.MustCompile(`(?m)(bash )?(hack/[a-z-]+\.sh|\.ci/run)`), func(t *testing.T, m []string) {
			if m[1] == "" { // A script after bash is one of Kubernetes.
				require.FileExists(t, filepath.Join(repository, m[2]))
			}
		}},
		{regexp.MustCompile(`hack/(patchset|pages)\.sh ([a-z-]+)(.*)`), func(t *testing.T, m []string) {
			if m[2] != "help" {
				require.Regexp(t, `(?:add|page)\("`+m[2]+`[ "]`, programs[m[1]], m[0])
			}
			for _, flag := range flags(m[3]) {
				require.Contains(t, programs[m[1]], `"`+flag+`"`, m[0])
			}
		}},
		{regexp.MustCompile(`go run -C (\S+) (\S+)(.*)`), func(t *testing.T, m []string) {
			requireFlags(t, m[0], filepath.Join(m[1], m[2]), m[3])
		}},
		{regexp.MustCompile(`go (?:test|install|run)((?: \S+)*? \.?/?[a-z][a-z/]*[a-z])(?:\s|$)`), func(t *testing.T, m []string) {
			words := strings.Fields(m[1])
			if dir := words[len(words)-1]; strings.HasPrefix(dir, "./") && !strings.Contains(m[1], "-C") && dir != "./timing" && dir != "./load" {
				require.DirExists(t, filepath.Join(repository, dir), m[0])
			}
		}},
		{regexp.MustCompile(`(?:^|[| ])(kubectl )?crashloop ([a-z]+)(.*)`), func(t *testing.T, m []string) {
			root := newRootCommand()
			if m[1] != "" {
				root = newPluginCommand(time.Now)
			}
			root.InitDefaultCompletionCmd()
			cmd, _, err := root.Find(append([]string{m[2]}, strings.Fields(m[3])...))
			require.NoError(t, err, m[0])
			cmd.InitDefaultHelpFlag()
			cmd.InheritedFlags() // This adds them to Flags.
			for _, flag := range flags(m[3]) {
				require.True(t, hasFlag(cmd, flag), m[0])
			}
		}},
	}
	inline := regexp.MustCompile("`([^`\n]+)`")
	for name, page := range written {
		t.Run(name, func(t *testing.T) {
			var commands []string
			for _, b := range blocksOf(page) {
				if b.lang == "sh" || b.lang == "console" {
					for line := range strings.Lines(strings.ReplaceAll(b.content, "\\\n", " ")) {
						if b.lang == "sh" || strings.HasPrefix(line, "$ ") {
							commands = append(commands, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "$ "))
						}
					}
				}
			}
			for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
				commands = append(commands, m[1])
			}
			for _, command := range commands {
				for _, c := range checks {
					for _, m := range c.command.FindAllStringSubmatch(command, -1) {
						c.check(t, m)
					}
				}
			}
		})
	}
}

// The pages name every series, and every patch of the newest one with its number.
func TestDocsSeries(t *testing.T) {
	series, err := filepath.Glob(filepath.Join(repository, "patches/v1.*"))
	require.NoError(t, err)
	require.NotEmpty(t, series)
	firstParagraph := strings.Split(repositoryFile(t, "README.md"), "\n\n")[1]
	for _, dir := range series {
		require.Contains(t, firstParagraph, filepath.Base(dir))
	}
	newest := repositoryFile(t, filepath.Join("patches", filepath.Base(series[len(series)-1]), "series"))
	patches := regexp.MustCompile(`(?m)^[a-z]+$`).FindAllString(newest, -1)
	require.NotEmpty(t, patches)
	for i, name := range patches {
		require.Contains(t, repositoryFile(t, "docs/patches.md"), fmt.Sprintf("\n| %d %s | ", i+1, name))
	}
}

func repositoryFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, file))
	require.NoError(t, err)
	return string(text)
}

var flagPattern = regexp.MustCompile(`(?:^|[\s])--?([a-zA-Z][a-zA-Z-]*)`)

// flags returns the names of the flags of a command line, to its end or a pipe.
func flags(line string) (names []string) {
	line, _, _ = strings.Cut(line, "|")
	line, _, _ = strings.Cut(line, "&&")
	for _, m := range flagPattern.FindAllStringSubmatch(line, -1) {
		names = append(names, m[1])
	}
	return names
}

func hasFlag(cmd *cobra.Command, name string) bool {
	return cmd.Flags().Lookup(name) != nil || len(name) == 1 && cmd.Flags().ShorthandLookup(name) != nil
}

// requireFlags requires that the program in dir names all flags of the command line.
func requireFlags(t *testing.T, command, dir, line string) {
	t.Helper()
	source := goFiles(t, dir)
	require.NotEmpty(t, source, command)
	for _, flag := range flags(line) {
		require.Contains(t, source, `"`+flag+`"`, command)
	}
}
