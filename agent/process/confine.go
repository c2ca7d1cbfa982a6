// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
)

// CanConfine returns nil if this process can give pods their own namespaces, else the
// reason why not. It tries to create the namespaces.
func CanConfine() error {
	p, err := startParent(shim.Parent{Title: "namespaces", Confined: true, Hostname: "namespaces"}, os.Geteuid(), os.Getegid())
	if err != nil {
		return err
	}
	p.end()
	<-p.ended
	return nil
}

// Validate returns an error for each field of a valid pod that the runtime cannot
// provide. The error has the type Forbidden if the pod can run unconfined without the
// field. An unconfined pod cannot have mounts, other users and read-only file systems. A
// confined pod cannot have access to the machine. Some fields need root.
func Validate(pod *v1.Pod, confined bool) (errs field.ErrorList) {
	forbid := func(path *field.Path, reason string) { errs = append(errs, field.Forbidden(path, reason)) }
	euid, egid := os.Geteuid(), os.Getegid()
	spec := field.NewPath("spec")
	const notConfined, notUnconfined = "not available in a confined pod", "not available without confinement"
	if confined && pod.Spec.HostPID {
		forbid(spec.Child("hostPID"), notConfined)
	}
	if confined && pod.Spec.HostIPC {
		forbid(spec.Child("hostIPC"), notConfined)
	}
	if sc := pod.Spec.SecurityContext; sc != nil && euid != 0 && len(sc.SupplementalGroups) > 0 {
		forbid(spec.Child("securityContext", "supplementalGroups"), "only root can set groups")
	}
	var one *user // The user of the first container: a user namespace maps only one.
	for at, c := range podspec.Containers(&pod.Spec) {
		sc := ptr.Deref(c.SecurityContext, v1.SecurityContext{})
		u := userOf(pod, c)
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
				forbid(at.Child("volumeMounts").Index(i), notUnconfined)
			}
			if ptr.Deref(sc.ReadOnlyRootFilesystem, false) {
				forbid(at.Child("securityContext", "readOnlyRootFilesystem"), notUnconfined)
			}
		}
		if euid != 0 && !confined && (u.UID != euid || u.GID != egid) {
			forbid(runAs, fmt.Sprintf("without confinement only root can run a container as %d:%d; the current user is %d:%d", u.UID, u.GID, euid, egid))
		}
		if one == nil {
			one = u
		}
		if euid != 0 && confined && (u.UID != one.UID || u.GID != one.GID) {
			forbid(runAs, fmt.Sprintf("only root can run the containers of one pod as several users, here %d:%d and %d:%d", one.UID, one.GID, u.UID, u.GID))
		}
		if u.nonRoot && u.UID == 0 {
			errs = append(errs, field.Invalid(within(sc.RunAsNonRoot != nil).Child("runAsNonRoot"), true, "the container would run as root: set runAsUser"))
		}
		if confined && ptr.Deref(sc.Privileged, false) {
			forbid(at.Child("securityContext", "privileged"), notConfined)
		}
		if sc.Capabilities == nil {
			continue
		}
		for i, name := range sc.Capabilities.Add {
			if _, ok := defaultCapabilities[name]; confined && !ok {
				forbid(at.Child("securityContext", "capabilities", "add").Index(i), notConfined)
			}
		}
	}
	return errs
}

type user struct {
	UID, GID int
	Groups   []int
	nonRoot  bool
	caps     *v1.Capabilities
}

// userOf returns the user of a container. The securityContext of the container takes
// precedence over that of the pod. The default is the user of the agent.
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

// differs reports whether the user, its groups or capabilities differ from the agent's.
func (u *user) differs() bool {
	return u.UID != os.Geteuid() || u.GID != os.Getegid() || u.Groups != nil || u.caps != nil
}

// defaultCapabilities are the capabilities that container runtimes give root, except
// MKNOD.
var defaultCapabilities = map[v1.Capability]uint{
	"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "FSETID": unix.CAP_FSETID, "FOWNER": unix.CAP_FOWNER,
	"NET_RAW": unix.CAP_NET_RAW, "SETGID": unix.CAP_SETGID, "SETUID": unix.CAP_SETUID, "SETFCAP": unix.CAP_SETFCAP,
	"SETPCAP": unix.CAP_SETPCAP, "NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "SYS_CHROOT": unix.CAP_SYS_CHROOT,
	"KILL": unix.CAP_KILL, "AUDIT_WRITE": unix.CAP_AUDIT_WRITE,
}

// capabilities returns the capabilities of root as a bit set. In an unconfined pod, root
// has all capabilities except the dropped ones.
func (u *user) capabilities(confined bool) uint64 {
	all := ^uint64(0)
	if confined {
		all = 0
		for _, c := range defaultCapabilities {
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
		if c, ok := defaultCapabilities[name]; ok {
			all &^= 1 << c
		}
	}
	for _, name := range u.caps.Add {
		if c, ok := defaultCapabilities[name]; ok {
			all |= 1 << c
		}
	}
	return all
}
