// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"cmp"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
)

// parentOf returns the configuration of a parent for the pod's containers.
func (r *Runtime) parentOf(confined bool, points []string) shim.Parent {
	p := shim.Parent{Title: r.pod.Namespace + "/" + r.pod.Name, Confined: confined, Hostname: podfiles.Hostname(r.pod), MountPoints: points}
	if len(points) > 0 {
		p.Volumes = r.volumes()
	}
	return p
}

func (r *Runtime) mountPoints() ([]string, error) {
	var points []string
	for _, c := range podspec.Containers(&r.pod.Spec) {
		env, err := podspec.Environment(r.pod, c, podIP)
		if err != nil {
			return nil, err
		}
		for _, m := range r.mounts(c, env) {
			point := m.Target + "/"
			if info, err := os.Stat(filepath.Join(r.volumes(), m.Source)); err == nil && !info.IsDir() {
				point = m.Target
			}
			points = append(points, point)
		}
	}
	return points, nil
}

func (r *Runtime) mounts(c *v1.Container, env []v1.EnvVar) []shim.Mount {
	var mounts []shim.Mount
	for _, m := range podspec.Mounts(r.pod, c, env) {
		// As in the kubelet, a relative path is relative to the root.
		mounts = append(mounts, shim.Mount{Source: m.Name + "/" + m.SubPath, Target: path.Join("/", m.MountPath), ReadOnly: m.ReadOnly})
	}
	slices.SortStableFunc(mounts, func(a, b shim.Mount) int { return cmp.Compare(len(a.Target), len(b.Target)) })
	return mounts
}

// command returns the common part of all commands in a container. Of the agent's
// environment it has only PATH and HOME.
func (r *Runtime) command(c *v1.Container, env []v1.EnvVar) shim.Command {
	values := map[string]string{"HOSTNAME": podfiles.Hostname(r.pod)}
	for _, name := range []string{"PATH", "HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			values[name] = value
		}
	}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	wd, _ := os.Getwd()
	command := shim.Command{Path: values["PATH"], Dir: c.WorkingDir, OrDir: wd}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		command.Env = append(command.Env, name+"="+values[name])
	}
	u := userOf(r.pod, c)
	if r.confined || os.Geteuid() == 0 && u.differs() {
		command.User = &shim.User{UID: u.UID, GID: u.GID, Groups: u.Groups, Root: os.Geteuid() == 0, Capabilities: u.capabilities(r.confined)}
	}
	if r.confined {
		command.Mounts = r.mounts(c, env)
		command.ReadOnlyTmp = c.SecurityContext != nil && ptr.Deref(c.SecurityContext.ReadOnlyRootFilesystem, false)
	}
	return command
}
