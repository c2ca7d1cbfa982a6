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

// startParent starts a parent for all containers of a confined pod, or for one of an
// unconfined pod.
func (r *Runtime) startParent() (*parent, error) {
	p := shim.Parent{Title: r.pod.Namespace + "/" + r.pod.Name}
	if r.sandbox == nil {
		return startParent(p, nil, "")
	}
	pod := r.sandbox.pod
	p.Bwrap = pod.Bwrap
	pod.Hostname = podfiles.Hostname(r.pod)
	if len(r.pod.Spec.Volumes) > 0 {
		if err := os.MkdirAll(r.volumes(), 0o755); err != nil {
			return nil, err
		}
		pod.Volumes = r.volumes()
		if pod.Root {
			err := filepath.WalkDir(pod.Volumes, func(path string, _ os.DirEntry, err error) error {
				return cmp.Or(err, os.Lchown(path, shim.Nobody, shim.Nobody))
			})
			if err != nil {
				return nil, err
			}
		}
	}
	command, dir := pod.Command(p.Args()), ""
	if r.sandbox.memory > 0 {
		self, err := os.ReadFile("/proc/self/cgroup")
		if err == nil {
			dir, err = memoryCgroup(string(self)).make(r.sandbox.memory)
		}
		if r.sandbox.inCgroup = err == nil; err == nil {
			command = inCgroup(dir, command)
		}
	}
	started, err := startParent(p, command, dir)
	if err != nil {
		os.Remove(dir)
	}
	return started, err
}

func (r *Runtime) mounts(c *v1.Container, env []v1.EnvVar) []shim.Mount {
	var mounts []shim.Mount
	for _, m := range podspec.Mounts(r.pod, c, env) {
		// As in the kubelet, a relative path is relative to the root.
		mounts = append(mounts, shim.Mount{Volume: m.Name, SubPath: m.SubPath, Target: path.Join("/", m.MountPath), ReadOnly: m.ReadOnly})
	}
	slices.SortStableFunc(mounts, func(a, b shim.Mount) int { return cmp.Compare(len(a.Target), len(b.Target)) })
	return mounts
}

// command returns the common part of all commands in a container. Of the agent's
// environment it has only PATH and HOME.
func (r *Runtime) command(c *v1.Container, env []v1.EnvVar) (shim.Command, error) {
	values := map[string]string{"HOSTNAME": podfiles.Hostname(r.pod)}
	for _, name := range []string{"PATH", "HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			values[name] = value
		}
	}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	command := shim.Command{Path: values["PATH"], Dir: c.WorkingDir}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		command.Env = append(command.Env, name+"="+values[name])
	}
	u := userOf(r.pod, c)
	if r.sandbox == nil {
		if os.Geteuid() == 0 && (u.UID != 0 || u.GID != os.Getegid() || u.Groups != nil) {
			command.User = &u.User
		}
		return command, nil
	}
	if c.WorkingDir == "" {
		command.Dir = r.sandbox.workingDir()
	}
	command.Dir = path.Join("/", command.Dir)
	s := &shim.Container{
		Limits: r.sandbox.limits(), UID: u.UID, GID: u.GID, Mounts: r.mounts(c, env),
		ReadOnlyTmp: c.SecurityContext != nil && ptr.Deref(c.SecurityContext.ReadOnlyRootFilesystem, false),
	}
	var targets []string
	for _, m := range s.Mounts {
		targets = append(targets, m.Target)
	}
	var err error
	s.Files, s.Mirrors, err = r.sandbox.files(targets)
	s.Mirrors = slices.DeleteFunc(s.Mirrors, func(dir string) bool { return slices.Contains(targets, dir) })
	command.Container = s
	return command, err
}
