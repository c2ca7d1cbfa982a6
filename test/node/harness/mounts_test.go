// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"testing"
)

func TestParseMounts(t *testing.T) {
	const text = `30 1 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
31 1 8:1 /srv/a\040b /mnt/a\040b rw - ext4 /dev/sda1 rw
broken
`
	got := parseMounts([]byte(text))
	if len(got) != 2 || got[0] != (mount{"/", "/sys/fs/cgroup/cpu", "cgroup"}) || got[1] != (mount{"/srv/a b", "/mnt/a b", "ext4"}) {
		t.Errorf("parseMounts = %+v", got)
	}
}
