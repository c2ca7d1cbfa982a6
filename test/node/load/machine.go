// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// Machine describes the machine of a measurement, and its time.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	// Load is the load average before the measurement.
	Load      string `json:"load"`
	Date      string `json:"date"`
	APIServer string `json:"apiserver"`
	Etcd      string `json:"etcd"`
}

// machine describes this machine, with the versions of API server and etcd.
func machine(ctx context.Context, apiserver string) (m Machine, err error) {
	m = Machine{Cores: runtime.NumCPU(), Date: time.Now().UTC().Format(time.DateOnly)}
	for _, read := range []struct {
		to        *string
		path, key string
	}{
		{&m.CPU, "/proc/cpuinfo", "model name"},
		{&m.Memory, "/proc/meminfo", "MemTotal"},
		{&m.Kernel, "/proc/sys/kernel/osrelease", ""},
		{&m.Load, "/proc/loadavg", ""},
	} {
		data, err := os.ReadFile(read.path)
		if err != nil {
			return m, err
		}
		*read.to = field(data, read.key)
	}
	m.Load, _, _ = strings.Cut(m.Load, " ")
	if kib, err := strconv.ParseFloat(strings.TrimSuffix(m.Memory, " kB"), 64); err == nil {
		m.Memory = fmt.Sprintf("%.0f GB", kib/mebibyte)
	}
	if m.APIServer, err = harness.Output(ctx, apiserver, "--version"); err != nil {
		return m, err
	}
	out, err := harness.Output(ctx, "etcd", "--version")
	if err != nil {
		return m, err
	}
	m.Etcd = field([]byte(out), "etcd Version")
	return m, nil
}

// field returns the value of a key in lines of the form "key: value", or without a
// key the first line.
func field(data []byte, key string) string {
	for l := range bytes.Lines(data) {
		text := strings.TrimSpace(string(l))
		if key == "" {
			return text
		}
		if name, value, found := strings.Cut(text, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores of %s, %s of memory, Linux %s; load average before: %s", m.Cores, m.CPU, m.Memory, m.Kernel, m.Load)
}

// kubeletInotify is the number of inotify instances that a kubelet has open.
const kubeletInotify = 5

// relative returns the path of a file, relative to the folder of another file.
func relative(from, to string) string {
	path, err := filepath.Rel(filepath.Dir(from), to)
	if err != nil {
		return to
	}
	return filepath.ToSlash(path)
}
