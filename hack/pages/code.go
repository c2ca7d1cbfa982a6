// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
)

// codeDigest returns a digest of the code that the series changes, without patch messages and comments. So the results of
// hours of tests and measurements stay valid when only the prose of a series changes.
func codeDigest(s *series.Series) string {
	h := sha256.New()
	for _, q := range s.Patches {
		fmt.Fprintln(h, q.Name)
		writeHunks(h, q.Mail)
		for _, path := range slices.Sorted(maps.Keys(q.Files)) {
			f := q.Files[path]
			code := f.Content
			if strings.HasSuffix(path, ".go") {
				code = goTokens(f.Content)
			}
			fmt.Fprintf(h, "%s %d\n%s", path, len(code), code)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// goTokens returns the tokens of the source without comments that are only prose. It returns the source itself if comments may
// matter.
func goTokens(source []byte) []byte {
	// Comments of an example may contain the output that go test compares.
	if bytes.Contains(source, []byte("\nfunc Example")) {
		return source
	}
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", -1, len(source)), source, nil, scanner.ScanComments)
	var b bytes.Buffer
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF && s.ErrorCount > 0:
			return source
		case tok == token.EOF:
			return b.Bytes()
		case tok == token.COMMENT && !counts(text):
		default:
			fmt.Fprintf(&b, "%v %s\n", tok, text)
		}
	}
}

// counts reports whether a tool reads the comment, such as a compiler directive or a marker of upstream's generators.
func counts(comment string) bool {
	return !prose.MatchString(comment) || strings.HasPrefix(comment, "// +")
}

var (
	prose      = regexp.MustCompile(`^//([ \t]|$)`)
	fileOfHunk = regexp.MustCompile(`^\+\+\+ (?:b/)?(.*?)\t?$`)
	hunkHead   = regexp.MustCompile(`^(@@ -\S+) \+\S+ @@.*$`)
)

// writeHunks writes the changes of the patch in files of the release. It keeps the position of a hunk in the release and drops
// the position in the result, which earlier patches can move.
func writeHunks(w io.Writer, mail string) {
	_, diff, _ := strings.Cut(mail, "\ndiff --git ")
	golang := false
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if m := fileOfHunk.FindStringSubmatch(line); m != nil {
			golang = strings.HasSuffix(m[1], ".go")
		}
		if m := hunkHead.FindStringSubmatch(line); m != nil {
			line = m[1]
		}
		if added, ok := strings.CutPrefix(line, "+"); ok && golang {
			if added = strings.TrimSpace(added); added == "" || strings.HasPrefix(added, "//") && !counts(added) {
				continue
			}
		}
		if !strings.HasPrefix(line, "index ") {
			fmt.Fprintln(w, line)
		}
	}
}
