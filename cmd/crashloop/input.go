// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/kubelet-backoff/kubelet-backoff/cmd/crashloop/internal/text"
)

// stdinFile is the name of stdin in a list of files.
const stdinFile = "-"

// readFile reads a file or stdin. More than max bytes are an error. Errors do not
// contain the path; the callers add it.
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

// readAll reads all bytes. More than max are an error.
func readAll(r io.Reader, max int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(data)) > max {
		return nil, fmt.Errorf("more than %d MiB, which is the limit", max>>20)
	}
	return data, err
}

// printable and cell escape names for a terminal. withoutPath returns the cause of an error.
var printable, cell, withoutPath = text.Printable, text.Cell, text.Reason
