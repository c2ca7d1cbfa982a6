// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// CheckInotify returns an error if the machine does not have so many inotify instances left.
// Without them, kubelets and containerd end, or do not start, after minutes of a run.
func CheckInotify(needed int) error {
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	for len(open) < needed {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("%d inotify instances are needed, and %d are left (%w): set sysctl fs.inotify.max_user_instances higher, for example to 8192",
				needed, len(open), err)
		}
		open = append(open, fd)
	}
	return nil
}
