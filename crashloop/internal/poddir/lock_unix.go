// SPDX-License-Identifier: Apache-2.0

//go:build unix

package poddir

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock locks a file until unlock is called or this process ends, and sets its modification
// time to now.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another crashloop runs this pod (%s is locked): stop it, or set another --root-dir", path)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	locked, err := f.Stat()
	if now, statErr := os.Stat(path); err == nil && (statErr != nil || !os.SameFile(locked, now)) {
		f.Close()
		return lock(path) // Open has removed the file.
	}
	os.Chtimes(path, time.Time{}, time.Now())
	return func() { f.Close() }, nil
}
