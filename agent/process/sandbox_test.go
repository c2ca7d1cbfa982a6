// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A directory gets a copy in memory if a mount point is missing in it, and only then.
func TestFiles(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	system := filepath.Join(dir, "etc")
	require.NoError(t, os.MkdirAll(filepath.Join(system, "app", "conf"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(system, "passwd"), nil, 0o644))
	require.NoError(t, os.Symlink("../run/resolv.conf", filepath.Join(system, "resolv.conf")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(system, "fifo"), 0o644))
	require.NoError(t, os.Symlink("etc", filepath.Join(dir, "link")))
	s := &sandbox{dirs: []hostDir{{system, "/source"}, {filepath.Join(dir, "link"), "/other"}, {filepath.Join(dir, "missing"), "/missing"}}}
	for _, tc := range []struct {
		name          string
		targets       []string
		options, want string
	}{
		{"nothing is missing", []string{"/data", "/etc/app/conf", "/etc/passwd"}, "--ro-bind /source /etc --symlink etc /link", ""},
		{
			"missing", []string{"/etc/app/new/deep", "/etc/new", "/link/other"}, "--ro-bind /source /etc --symlink etc /link " +
				"--tmpfs /etc --ro-bind /source/app /etc/app --ro-bind /source/passwd /etc/passwd --symlink ../run/resolv.conf /etc/resolv.conf " +
				"--tmpfs /etc/app --ro-bind /source/app/conf /etc/app/conf", "/etc /etc/app",
		},
	} {
		var targets []string
		for _, target := range tc.targets {
			targets = append(targets, dir+target)
		}
		options, mirrors, err := s.files(targets)
		require.NoError(t, err)
		without := func(list []string) string { return strings.ReplaceAll(strings.Join(list, " "), dir, "") }
		require.Equal(t, tc.options, without(options), tc.name)
		require.Equal(t, tc.want, without(mirrors), tc.name)
	}
	require.Equal(t, "/", s.workingDir())
}

func TestMemoryCgroup(t *testing.T) {
	v1 := func(parent string) cgroup {
		return cgroup{parent, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", true}
	}
	v2 := func(parent string) cgroup { return cgroup{parent, "memory.max", "memory.swap.max", false} }
	for text, want := range map[string]cgroup{
		"9:pids:/\n5:memory:/\n0::/\n":                                       v1("/sys/fs/cgroup/memory"),
		"5:cpu,memory:/docker/a\n":                                           v1("/sys/fs/cgroup/memory/docker/a"),
		"0::/user.slice/user-0.slice/session-1.scope\n":                      v2("/sys/fs/cgroup/user.slice/user-0.slice"),
		"1:name=systemd:/init.scope\n0::/system.slice/crashloop:a.service\n": v2("/sys/fs/cgroup/system.slice"),
		"": {},
	} {
		require.Equal(t, want, memoryCgroup(text), text)
	}
}

// A missing program is named with the package that has it.
func TestMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	const want = "the program bwrap is not installed; install it with: apt-get install bubblewrap"
	require.EqualError(t, CanConfine(), want)
	_, err := New(newSpec(), t.TempDir(), Options{}, nil, nil)
	require.EqualError(t, err, want)
	_, err = New(newSpec(), t.TempDir(), Options{Unconfined: true}, nil, nil)
	require.NoError(t, err)
}
