// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
)

// stdinFile is the name of stdin in a list of files.
const stdinFile = "-"

// readFile reads a file or stdin. It returns an error for more than max bytes. Errors do
// not contain the path, because the callers add it.
func readFile(path string, stdin io.Reader, max int64) ([]byte, error) {
	if path == stdinFile {
		return readAll(stdin, max)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, text.Reason(err)
	}
	defer f.Close()
	data, err := readAll(f, max)
	return data, text.Reason(err)
}

// readAll reads all bytes. It returns an error for more than max bytes.
func readAll(r io.Reader, max int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(data)) > max {
		return nil, fmt.Errorf("more than %d MiB, which is the limit", max>>20)
	}
	return data, err
}
