// SPDX-License-Identifier: Apache-2.0

// Package console formats what patchset prints: progress, warnings, and errors with details.
package console

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Log prints what a command does.
type Log struct{ Out, ErrOut io.Writer }

// Say prints a step that starts or is done.
func (l Log) Say(format string, args ...any) { fmt.Fprintf(l.Out, "==> "+format+"\n", args...) }

// Note prints a detail of the step.
func (l Log) Note(format string, args ...any) { fmt.Fprintf(l.Out, "    "+format+"\n", args...) }

// Warn prints a warning.
func (l Log) Warn(format string, args ...any) {
	fmt.Fprintf(l.ErrOut, "warning: "+format+"\n", args...)
}

// Error returns an error with lines of details below its message. It leaves out empty details.
func Error(message string, details ...string) error {
	for _, d := range details {
		if d = strings.TrimRight(d, "\n"); d != "" {
			message += "\n" + d
		}
	}
	return errors.New(message)
}

// Indent prefixes all lines except the first with by.
func Indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

var plainWord = regexp.MustCompile(`^[\w./+:@%-]+$`)

func QuoteShell(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var noiseLine = regexp.MustCompile(`(?m)^([a-z0-9][A-Za-z0-9._/-]*|go: downloading .*)\n`)

// ErrorLines returns the end of the output of a build, without the package names that `go build -v` prints.
func ErrorLines(out string) string { return LastLines(noiseLine.ReplaceAllString(out+"\n", ""), 60) }

func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func FirstLines(text string, n int) string {
	if lines := strings.Split(text, "\n"); len(lines) > n {
		text = strings.Join(append(lines[:n], "..."), "\n")
	}
	return text
}
