// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// readerGone returns a channel that is closed when nobody reads f anymore, a pipe or a
// socket. A write would fail, but a pod may run for long before the next one.
func readerGone(f *os.File) <-chan struct{} {
	gone := make(chan struct{})
	poll := []unix.PollFd{{Fd: int32(f.Fd())}} // These two are always reported.
	go func() {
		_, err := unix.Poll(poll, -1)
		for err == unix.EINTR {
			_, err = unix.Poll(poll, -1)
		}
		if poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			close(gone)
		}
	}()
	return gone
}
