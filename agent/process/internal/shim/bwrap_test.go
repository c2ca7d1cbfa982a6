// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lines joins arguments, with a line for each option.
func lines(args []string) string { return strings.ReplaceAll(strings.Join(args, " "), " --", "\n--") }

// golden is the text of a test without its indentation.
func golden(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n\t\t", "\n") }

func TestPodCommand(t *testing.T) {
	pod := Pod{Bwrap: "/usr/bin/bwrap", Setpriv: "/usr/bin/setpriv", Executable: "/bin/agent", Hostname: "web", Volumes: "/pod/volumes", HostDirs: []string{"/srv/a", "/srv/b"}, MemoryFiles: 1 << 20}
	parent := Parent{Title: "default/web", Bwrap: "/usr/bin/bwrap"}.Args()
	require.Equal(t, golden(`
		/usr/bin/bwrap
		--ro-bind / /
		--dev-bind /dev /dev
		--chdir /
		--perms 1777
		--size 1048576
		--tmpfs /dev/shm
		--ro-bind /bin/agent /dev/shm/crashloop
		--bind /pod/volumes /dev/shm/volumes
		--ro-bind /srv/a /dev/shm/dir0
		--ro-bind /srv/b /dev/shm/dir1
		--unshare-user
		--uid 0
		--gid 0
		--unshare-pid
		--as-pid-1
		--unshare-ipc
		--unshare-uts
		--unshare-cgroup-try
		--cap-drop ALL
		--cap-add CAP_NET_ADMIN
		--cap-add CAP_SETFCAP
		--proc /proc
		--hostname web
		--unshare-net
		-- /dev/shm/crashloop default/web /usr/bin/bwrap`), lines(pod.Command(parent)))
	require.Equal(t, golden(`
		/usr/bin/bwrap
		--ro-bind / /
		--dev-bind /dev /dev
		--chdir /
		--perms 1777
		--tmpfs /dev/shm
		--ro-bind /bin/agent /dev/shm/crashloop
		--bind /proc /proc
		-- /usr/bin/setpriv
		--reuid=65534
		--regid=65534
		--clear-groups
		--inh-caps=-all
		--bounding-set=-all
		-- /usr/bin/bwrap
		--dev-bind / /
		--chdir /
		--unshare-user
		--uid 0
		--gid 0
		--unshare-pid
		--as-pid-1
		--unshare-ipc
		--unshare-uts
		--unshare-cgroup-try
		--cap-drop ALL
		--cap-add CAP_NET_ADMIN
		--cap-add CAP_SETFCAP
		--proc /proc
		-- /dev/shm/crashloop default/web /usr/bin/bwrap`), lines(Pod{Bwrap: pod.Bwrap, Setpriv: pod.Setpriv, Executable: pod.Executable, Root: true, HostNetwork: true}.Command(parent)))
}

func TestContainerOptions(t *testing.T) {
	c := Command{Env: []string{"A=b=c", "LD_PRELOAD=/x"}, Dir: "/data", Container: &Container{
		Files: []string{"--ro-bind", "/usr", "/usr", "--tmpfs", "/etc"}, Mirrors: []string{"/etc"}, ReadOnlyTmp: true,
		Mounts: []Mount{{Volume: "data", Target: "/data"}, {Volume: "config", Target: "/etc/app", ReadOnly: true}, {Volume: "data", SubPath: "a/b", Target: "/data/sub"}, {Volume: "shm", Target: "/dev/shm"}},
	}}
	// Everything that protects the machine follows the volumes.
	require.Equal(t, golden(`
		--clearenv
		--setenv A b=c
		--setenv LD_PRELOAD /x
		--ro-bind /usr /usr
		--tmpfs /etc
		--bind /dev/shm/tmp/1 /tmp
		--bind /dev/shm/volumes/data /data
		--ro-bind /dev/shm/volumes/config /etc/app
		--bind-fd 7 /data/sub
		--proc /proc
		--dev /dev
		--bind /dev/shm/shm /dev/shm
		--bind /dev/shm/volumes/shm /dev/shm
		--remount-ro /
		--remount-ro /dev
		--remount-ro /etc
		--remount-ro /tmp
		--cap-drop ALL
		--new-session
		--chdir /data`), lines(c.options("/dev/shm/tmp/1", map[string]int{"/data/sub": 7})))
	c.Container.Mounts = []Mount{{Volume: "data", Target: "/tmp"}}
	require.NotContains(t, lines(c.options("/dev/shm/tmp/1", nil)), "--remount-ro /tmp", "that is a volume")
}

func TestFilter(t *testing.T) {
	require.Len(t, filterBytes(), len(filter())*8)
	require.Contains(t, auditArch, runtime.GOARCH)
}
