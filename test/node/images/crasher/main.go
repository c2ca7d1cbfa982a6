// SPDX-License-Identifier: Apache-2.0

// Command crasher writes the time of its start and fails at once. It is the only
// program of the measured containers. The difference of two lines is the restart
// interval, measured in the container and without any log.
package main

import (
	"bytes"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "crasher: want one argument, the file to append the start time to")
		os.Exit(2)
	}
	if err := note(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crasher:", err)
		os.Exit(2)
	}
	os.Exit(1)
}

// note appends the machine's uptime, which never steps, unlike the wall clock.
func note(path string) error {
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return err
	}
	seconds, _, _ := bytes.Cut(uptime, []byte(" "))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	// One write, so that a reader never sees half of a finished line.
	if _, err := f.Write(append(seconds, '\n')); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
