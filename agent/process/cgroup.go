// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// cgroup is where the cgroups of pods may be made, and the files in them.
type cgroup struct {
	// parent is the directory in which they are made.
	parent string
	// limit is the file for the limit of memory, swap one for the limit of swap, or of memory
	// with swap in version 1. total says that it is the latter.
	limit, swap string
	total       bool
}

// memoryCgroup returns where a process whose /proc/PID/cgroup has this text may make a
// cgroup with a limit of memory. In version 2 a cgroup with processes can have no other
// below it, so it is beside that of the process.
func memoryCgroup(text string) cgroup {
	const root = "/sys/fs/cgroup"
	var v2 cgroup
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy-ID:controllers:path
		if len(fields) != 3 {
			continue
		}
		if slices.Contains(strings.Split(fields[1], ","), "memory") {
			return cgroup{path.Join(root, "memory", fields[2]), "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", true}
		}
		if fields[0] == "0" {
			v2 = cgroup{path.Join(root, path.Dir(fields[2])), "memory.max", "memory.swap.max", false}
		}
	}
	return v2
}

// cgroupPrefix is the beginning of the names of cgroups. The PID of the agent follows.
const cgroupPrefix = "crashloop-"

// make makes a cgroup with a limit of memory and returns its directory. Most ordinary
// users may not do so.
func (c cgroup) make(limit int64) (dir string, err error) {
	entries, err := os.ReadDir(c.parent)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		// One that a killed agent has left. That of a running agent may have no process yet.
		if pid, ok := strings.CutPrefix(e.Name(), cgroupPrefix); ok {
			pid, _, _ = strings.Cut(pid, "-")
			if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
				os.Remove(path.Join(c.parent, e.Name())) // This fails if the cgroup has processes.
			}
		}
	}
	dir = path.Join(c.parent, fmt.Sprintf("%s%d-%s", cgroupPrefix, os.Getpid(), uuid.NewUUID()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(path.Join(dir, c.limit), []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
		os.Remove(dir)
		return "", err
	}
	swap := "0"
	if c.total {
		swap = strconv.FormatInt(limit, 10)
	}
	os.WriteFile(path.Join(dir, c.swap), []byte(swap), 0) // Without swap it does not exist.
	return dir, nil
}

// inCgroup returns the command that runs another one in a cgroup.
func inCgroup(dir string, command []string) []string {
	return append([]string{"/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir}, command...)
}
