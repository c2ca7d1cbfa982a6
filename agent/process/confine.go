// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"fmt"
	"os"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
)

// Validate returns an error for each field of a valid pod that the runtime cannot
// provide. The error has the type Forbidden if the pod can run unconfined without the
// field. An unconfined pod cannot have mounts and read-only file systems, and only root
// can run one as another user. A confined pod cannot have access to the machine,
// capabilities and groups.
func Validate(pod *v1.Pod, o Options) (errs field.ErrorList) {
	forbid := func(path *field.Path, reason string) { errs = append(errs, field.Forbidden(path, reason)) }
	euid, egid := os.Geteuid(), os.Getegid()
	spec := field.NewPath("spec")
	const notConfined, notUnconfined = "not available in a confined pod", "not available without confinement"
	for _, host := range []struct {
		name  string
		value bool
	}{{"hostPID", pod.Spec.HostPID}, {"hostIPC", pod.Spec.HostIPC}, {"hostNetwork", pod.Spec.HostNetwork && !o.HostNetwork}} {
		if host.value && !o.Unconfined {
			forbid(spec.Child(host.name), notConfined)
		}
	}
	if sc := pod.Spec.SecurityContext; sc != nil && len(sc.SupplementalGroups) > 0 {
		if groups := spec.Child("securityContext", "supplementalGroups"); !o.Unconfined {
			forbid(groups, notConfined)
		} else if euid != 0 {
			forbid(groups, "only root can set groups")
		}
	}
	for at, c := range podspec.Containers(&pod.Spec) {
		sc := ptr.Deref(c.SecurityContext, v1.SecurityContext{})
		u := userOf(pod, c)
		within := func(container bool) *field.Path {
			if container {
				return at.Child("securityContext")
			}
			return spec.Child("securityContext")
		}
		for i, m := range c.VolumeMounts {
			if target := path.Join("/", m.MountPath) + "/"; o.Unconfined {
				forbid(at.Child("volumeMounts").Index(i), notUnconfined)
			} else if strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/") || strings.HasPrefix(target, "/dev/") && !strings.HasPrefix(target, "/dev/shm/") {
				errs = append(errs, field.Invalid(at.Child("volumeMounts").Index(i).Child("mountPath"), m.MountPath, "must not be /proc, /sys or /dev, or below one of them, except /dev/shm"))
			}
		}
		if o.Unconfined && ptr.Deref(sc.ReadOnlyRootFilesystem, false) {
			forbid(at.Child("securityContext", "readOnlyRootFilesystem"), notUnconfined)
		}
		if o.Unconfined && euid != 0 && (u.UID != euid || u.GID != egid) {
			runAs := within(sc.RunAsUser != nil).Child("runAsUser")
			if u.UID == euid {
				runAs = within(sc.RunAsGroup != nil).Child("runAsGroup")
			}
			forbid(runAs, fmt.Sprintf("without confinement only root can run a container as %d:%d; the current user is %d:%d", u.UID, u.GID, euid, egid))
		}
		if u.nonRoot && u.UID == 0 {
			errs = append(errs, field.Invalid(within(sc.RunAsNonRoot != nil).Child("runAsNonRoot"), true, "the container would run as root: set runAsUser"))
		}
		if !o.Unconfined && ptr.Deref(sc.Privileged, false) {
			forbid(at.Child("securityContext", "privileged"), notConfined)
		}
		if sc.Capabilities == nil {
			continue
		}
		if o.Unconfined {
			forbid(at.Child("securityContext", "capabilities"), notUnconfined)
			continue
		}
		for i, name := range sc.Capabilities.Add {
			if name != "NET_BIND_SERVICE" { // Every port is available without it.
				forbid(at.Child("securityContext", "capabilities", "add").Index(i), notConfined)
			}
		}
	}
	return errs
}

type user struct {
	shim.User
	nonRoot bool
}

// userOf returns the user of a container. The securityContext of the container takes
// precedence over that of the pod. The default is the user of the agent.
func userOf(pod *v1.Pod, c *v1.Container) *user {
	u := &user{User: shim.User{UID: os.Geteuid(), GID: os.Getegid()}}
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
	}
	return u
}
