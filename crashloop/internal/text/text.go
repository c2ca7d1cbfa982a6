// SPDX-License-Identifier: Apache-2.0

// Package text formats strings from files and users so that a terminal displays them and
// does not interpret them.
package text

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// unescape undoes the escapes of printable characters in a Go string.
var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// Printable returns a string on one line. Characters that are not printable, and invalid
// UTF-8, are escaped as in a Go string.
func Printable(s string) string {
	quoted := strconv.Quote(s)
	return unescape.Replace(quoted[1 : len(quoted)-1])
}

// Cell returns a name for a table. It quotes a name that has spaces or must be escaped.
func Cell(name string) string {
	if quoted := strconv.Quote(name); strings.ContainsRune(name, ' ') || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// Seconds formats a duration in seconds, as the KEPs do: 1.5s.
func Seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// Reason returns the cause of an error about a file, without the path. Callers add the path
// that the user gave.
func Reason(err error) error {
	if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	if linkErr := (*os.LinkError)(nil); errors.As(err, &linkErr) {
		return linkErr.Err
	}
	return err
}

// WriteJSON writes a value as JSON, on one line if indent is empty.
func WriteJSON(w io.Writer, indent string, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
