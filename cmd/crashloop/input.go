// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// stdinFile is stdin among the files.
const stdinFile = "-"

// readFile reads a file, or stdin, unless it has more than max bytes. Its errors
// leave out the path, which its callers add.
func readFile(path string, stdin io.Reader, max int64) ([]byte, error) {
	if path == stdinFile {
		return readAll(stdin, max)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	data, err := readAll(f, max)
	return data, withoutPath(err)
}

// readAll reads all there is, unless that is too much.
func readAll(r io.Reader, max int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(data)) > max {
		return nil, fmt.Errorf("more than %d MiB, which is the limit", max>>20)
	}
	return data, err
}

// withoutPath returns an error without the path that its caller adds.
func withoutPath(err error) error {
	if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// printable returns a text in one line, with all that a terminal would act on,
// and all that cannot be seen, as in a Go string.
func printable(s string) string { return string(appendEscaped(nil, s, strconv.IsPrint)) }

// appendEscaped appends a text of which all that is not shown, and what is no
// UTF-8, stands as in a Go string.
func appendEscaped(to []byte, s string, shown func(rune) bool) []byte {
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			to = fmt.Appendf(to, `\x%02x`, s[0])
		case !shown(r):
			quoted := strconv.QuoteRune(r)
			to = append(to, quoted[1:len(quoted)-1]...)
		default:
			to = append(to, s[:size]...)
		}
		s = s[size:]
	}
	return to
}

// cell returns a name as it stands in a table: quoted if it could be taken for
// several cells or rows.
func cell(name string) string {
	if quoted := strconv.Quote(name); strings.ContainsRune(name, ' ') || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}
