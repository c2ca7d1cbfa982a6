// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// lock keeps other processes from locking the file until unlock is called or
// this process ends. The file has the time of its newest lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another crashloop runs it (%s is locked): end that one, or set another --root-dir", path)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	locked, err := f.Stat()
	if now, statErr := os.Stat(path); err == nil && (statErr != nil || !os.SameFile(locked, now)) {
		f.Close()
		return lock(path) // prune has removed it meanwhile.
	}
	os.Chtimes(path, time.Time{}, time.Now())
	return func() { f.Close() }, nil
}

// stayBelow keeps the table from being drawn over what the shell and its user
// write between Ctrl-Z and fg, until end is called.
func (p *printer) stayBelow() (end func()) {
	if p.size == nil {
		return func() {}
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTSTP, unix.SIGCONT)
	go func() {
		for s := range signals {
			p.leave(s == unix.SIGTSTP)
			if s == unix.SIGTSTP {
				unix.Kill(unix.Getpid(), unix.SIGSTOP)
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}
