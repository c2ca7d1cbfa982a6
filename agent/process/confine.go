// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
)

// CanConfine returns why pods of this process cannot have namespaces of their own,
// or nil. It makes some and ends them.
func CanConfine() error {
	p, err := startParent(shim.Parent{Title: "namespaces", Confined: true, Hostname: "namespaces"}, os.Geteuid(), os.Getegid())
	if err != nil {
		return err
	}
	p.end()
	<-p.ended
	return nil
}

// Validate returns an error for each field of a valid pod that asks for what the
// runtime cannot give, Forbidden where the pod can be run without that: without confinement a mount, another user or a read-only
// file system, and with it what is the machine's, or more than an agent may that
// is not root. Of securityContext it
// covers what is about users, capabilities and files.
func Validate(pod *v1.Pod, confined bool) (errs field.ErrorList) {
	forbid := func(path *field.Path, reason string) { errs = append(errs, field.Forbidden(path, reason)) }
	euid, egid := os.Geteuid(), os.Getegid()
	spec := field.NewPath("spec")
	const ofMachine = "a confined pod has nothing of the machine's: leave it out, or run without confinement"
	if confined {
		for name, set := range map[string]bool{"hostPID": pod.Spec.HostPID, "hostIPC": pod.Spec.HostIPC} {
			if set {
				forbid(spec.Child(name), ofMachine)
			}
		}
	}
	if sc := pod.Spec.SecurityContext; sc != nil && euid != 0 && len(sc.SupplementalGroups) > 0 {
		forbid(spec.Child("securityContext", "supplementalGroups"), "only root can give groups")
	}
	var one *user // of all containers, in a user namespace
	for _, c := range containers(&pod.Spec) {
		at := spec.Child(c.field).Index(c.index)
		sc := ptr.Deref(c.SecurityContext, v1.SecurityContext{})
		u := userOf(pod, c.Container)
		within := func(container bool) *field.Path {
			if container {
				return at.Child("securityContext")
			}
			return spec.Child("securityContext")
		}
		runAs := within(sc.RunAsUser != nil).Child("runAsUser")
		if one != nil && u.UID == one.UID || one == nil && u.UID == euid {
			runAs = within(sc.RunAsGroup != nil).Child("runAsGroup")
		}
		if !confined {
			for i := range c.VolumeMounts {
				forbid(at.Child("volumeMounts").Index(i), "without confinement nothing is mounted")
			}
			if ptr.Deref(sc.ReadOnlyRootFilesystem, false) {
				forbid(at.Child("securityContext", "readOnlyRootFilesystem"), "without confinement the file system is the machine's")
			}
		}
		for i, m := range c.VolumeMounts {
			if path.Join("/", m.MountPath) == "/" {
				errs = append(errs, field.Invalid(at.Child("volumeMounts").Index(i).Child("mountPath"), m.MountPath, "the root is no place for a volume"))
			}
		}
		if euid != 0 && !confined && (u.UID != euid || u.GID != egid) {
			forbid(runAs, fmt.Sprintf("without confinement only root can run a container as %d:%d, and this is %d:%d", u.UID, u.GID, euid, egid))
		}
		if one == nil {
			one = u
		}
		if euid != 0 && confined && (u.UID != one.UID || u.GID != one.GID) {
			forbid(runAs, fmt.Sprintf("only root can run the containers of a pod as several users, here %d:%d and %d:%d", one.UID, one.GID, u.UID, u.GID))
		}
		if u.nonRoot && u.UID == 0 {
			errs = append(errs, field.Invalid(within(sc.RunAsNonRoot != nil).Child("runAsNonRoot"), true, "the container would run as root: set runAsUser"))
		}
		if confined && ptr.Deref(sc.Privileged, false) {
			forbid(at.Child("securityContext", "privileged"), ofMachine)
		}
		if sc.Capabilities == nil {
			continue
		}
		for i, name := range sc.Capabilities.Add {
			if _, ok := ofContainers[name]; confined && !ok {
				forbid(at.Child("securityContext", "capabilities", "add").Index(i), ofMachine)
			}
		}
	}
	return errs
}

// container is one with where it is in the spec.
type container struct {
	*v1.Container
	field string
	index int
}

func containers(spec *v1.PodSpec) []container {
	var list []container
	for i := range spec.InitContainers {
		list = append(list, container{&spec.InitContainers[i], "initContainers", i})
	}
	for i := range spec.Containers {
		list = append(list, container{&spec.Containers[i], "containers", i})
	}
	return list
}

// user is who a container runs as.
type user struct {
	UID, GID int
	Groups   []int
	nonRoot  bool
	caps     *v1.Capabilities
}

// userOf returns who a container runs as. What its securityContext does not have is
// from the pod's, and then from the agent.
func userOf(pod *v1.Pod, c *v1.Container) *user {
	u := &user{UID: os.Geteuid(), GID: os.Getegid()}
	set := func(uid, gid *int64, nonRoot *bool) {
		u.UID, u.GID = int(ptr.Deref(uid, int64(u.UID))), int(ptr.Deref(gid, int64(u.GID)))
		u.nonRoot = ptr.Deref(nonRoot, u.nonRoot)
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		set(sc.RunAsUser, sc.RunAsGroup, sc.RunAsNonRoot)
		for _, g := range sc.SupplementalGroups {
			u.Groups = append(u.Groups, int(g))
		}
		if sc.FSGroup != nil {
			u.Groups = append(u.Groups, int(*sc.FSGroup))
		}
	}
	if sc := c.SecurityContext; sc != nil {
		set(sc.RunAsUser, sc.RunAsGroup, sc.RunAsNonRoot)
		u.caps = sc.Capabilities
	}
	return u
}

// wanted reports whether a pod asks for another user than the agent's.
func (u *user) wanted() bool {
	return u.UID != os.Geteuid() || u.GID != os.Getegid() || u.Groups != nil || u.caps != nil
}

// ofContainers are the capabilities that container runtimes give the user 0, but for
// MKNOD.
var ofContainers = map[v1.Capability]uint{
	"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "FSETID": unix.CAP_FSETID, "FOWNER": unix.CAP_FOWNER,
	"NET_RAW": unix.CAP_NET_RAW, "SETGID": unix.CAP_SETGID, "SETUID": unix.CAP_SETUID, "SETFCAP": unix.CAP_SETFCAP,
	"SETPCAP": unix.CAP_SETPCAP, "NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "SYS_CHROOT": unix.CAP_SYS_CHROOT,
	"KILL": unix.CAP_KILL, "AUDIT_WRITE": unix.CAP_AUDIT_WRITE,
}

// capabilities returns the set of those that the user 0 has. Without confinement it
// has all that are not dropped by name.
func (u *user) capabilities(confined bool) uint64 {
	all := ^uint64(0)
	if confined {
		all = 0
		for _, c := range ofContainers {
			all |= 1 << c
		}
	}
	if u.caps == nil {
		return all
	}
	if slices.Contains(u.caps.Drop, "ALL") {
		all = 0
	}
	for _, name := range u.caps.Drop {
		if c, ok := ofContainers[name]; ok {
			all &^= 1 << c
		}
	}
	for _, name := range u.caps.Add {
		if c, ok := ofContainers[name]; ok {
			all |= 1 << c
		}
	}
	return all
}
