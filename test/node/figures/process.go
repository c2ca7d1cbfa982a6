// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// ticks is the number of clock ticks per second in /proc: 100 on every architecture
// that the kubelet supports.
const ticks = 100

// CPU returns the processor time that a process has used, in seconds.
func CPU(pid int) (float64, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	return parseCPU(stat)
}

// parseCPU returns the processor time, in seconds, of a /proc/PID/stat line.
func parseCPU(stat []byte) (float64, error) {
	// The second field is the command in parentheses, and may contain any character.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, fmt.Errorf("no ')' in process status %q", stat)
	}
	fields := bytes.Fields(stat[end+1:])
	// The slice begins with the third field. utime is the 14th field, stime the 15th.
	const utime, stime = 14 - 3, 15 - 3
	if len(fields) <= stime {
		return 0, fmt.Errorf("process status %q has too few fields", stat)
	}
	total := 0.0
	for _, i := range []int{utime, stime} {
		v, err := strconv.ParseFloat(string(fields[i]), 64)
		if err != nil {
			return 0, fmt.Errorf("process status %q: %w", stat, err)
		}
		total += v
	}
	return total / ticks, nil
}

// Busy returns the processor time that all processes have used, and the time that a
// hypervisor gave to other machines while this one had work, in seconds.
func Busy() (used, stolen float64, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	return parseBusy(stat)
}

// parseBusy parses the first line of /proc/stat. It does not count idle and iowait as
// used.
func parseBusy(stat []byte) (used, stolen float64, err error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	f := bytes.Fields(line)
	// user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of user.
	if len(f) < 9 || string(f[0]) != "cpu" {
		return 0, 0, fmt.Errorf("line %q does not have the times of the processors", line)
	}
	for i, text := range f[1:9] {
		v, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return 0, 0, fmt.Errorf("times of the processors %q: %w", line, err)
		}
		switch i {
		case 3, 4:
		case 7:
			stolen = v / ticks
		default:
			used += v / ticks
		}
	}
	return used, stolen, nil
}

// Memory returns the resident memory of a process in bytes.
func Memory(pid int) (float64, error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	return parseMemory(status)
}

// parseMemory returns the resident memory in a /proc/PID/status.
func parseMemory(status []byte) (float64, error) {
	for line := range bytes.Lines(status) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "VmRSS:" {
			kib, err := strconv.ParseFloat(string(f[1]), 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in process status %q", status)
}

// KubeletVersion returns the version that a kubelet binary prints.
func KubeletVersion(ctx context.Context, kubelet string) (string, error) {
	out, err := harness.Output(ctx, kubelet, "--version")
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(out, "Kubernetes "), nil
}
