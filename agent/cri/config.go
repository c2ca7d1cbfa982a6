// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
)

// The labels of pkg/kubelet/types, which tools use, and labelManagedBy, which the pods of
// a kubelet at the same endpoint do not have.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
	labelManagedBy     = "kubelet-backoff.github.io/managed-by"
	managedBy          = "crashloop"
	// annotationRestartCount repeats the attempt of the instance.
	annotationRestartCount = "io.kubernetes.container.restartCount"
	// annotationDir is the directory of the pod.
	annotationDir = "kubelet-backoff.github.io/dir"
)

// Support lists the fields of a pod that the runtime supports.
var Support = podspec.Support{Name: "cri", Honored: []string{
	"spec.hostname",
	"spec.hostIPC",
	"spec.hostNetwork",
	"spec.hostPID",
	"spec.shareProcessNamespace",
	"spec.securityContext.runAsGroup",
	"spec.securityContext.runAsUser",
	"spec.containers.image",
	"spec.containers.imagePullPolicy",
	"spec.containers.resources.limits.cpu",
	"spec.containers.resources.limits.memory",
	"spec.containers.resources.requests.cpu",
	"spec.containers.securityContext.allowPrivilegeEscalation",
	"spec.containers.securityContext.capabilities",
	"spec.containers.securityContext.privileged",
	"spec.containers.securityContext.readOnlyRootFilesystem",
	"spec.containers.securityContext.runAsGroup",
	"spec.containers.securityContext.runAsUser",
	"spec.containers.volumeMounts.readOnly",
}}

// selector returns the labels of the pod's sandboxes and containers.
func (r *Runtime) selector() map[string]string {
	return map[string]string{
		labelManagedBy: managedBy,
		labelPodName:   r.pod.Name, labelPodNamespace: r.pod.Namespace, labelPodUID: string(r.pod.UID),
	}
}

// sandboxConfig keeps the behavior of generatePodSandboxConfig of
// pkg/kubelet/kuberuntime for the fields of Support.
func (r *Runtime) sandboxConfig(attempt uint32) *runtimeapi.PodSandboxConfig {
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, r.pod.Labels)
	maps.Copy(labels, r.selector())
	maps.Copy(annotations, r.pod.Annotations)
	annotations[annotationDir] = r.dir
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: r.pod.Name, Namespace: r.pod.Namespace, Uid: string(r.pod.UID), Attempt: attempt},
		LogDirectory: filepath.Join(r.dir, podfiles.Logs),
		Labels:       labels, Annotations: annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: r.cgroupParent, SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: namespaces(r.pod),
			Privileged: slices.ContainsFunc(slices.Concat(r.pod.Spec.InitContainers, r.pod.Spec.Containers), func(c v1.Container) bool {
				return c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
			}),
		}},
	}
	if !r.pod.Spec.HostNetwork {
		config.Hostname = podfiles.Hostname(r.pod)
	}
	return config
}

func namespaces(pod *v1.Pod) *runtimeapi.NamespaceOption {
	mode := func(host bool, otherwise runtimeapi.NamespaceMode) runtimeapi.NamespaceMode {
		if host {
			return runtimeapi.NamespaceMode_NODE
		}
		return otherwise
	}
	pid := runtimeapi.NamespaceMode_CONTAINER
	if ptr.Deref(pod.Spec.ShareProcessNamespace, false) {
		pid = runtimeapi.NamespaceMode_POD
	}
	return &runtimeapi.NamespaceOption{
		Network: mode(pod.Spec.HostNetwork, runtimeapi.NamespaceMode_POD),
		Ipc:     mode(pod.Spec.HostIPC, runtimeapi.NamespaceMode_POD),
		Pid:     mode(pod.Spec.HostPID, pid),
	}
}

// containerConfig keeps the behavior of generateContainerConfig of
// pkg/kubelet/kuberuntime for the fields of Support.
func (r *Runtime) containerConfig(c *v1.Container, restarts int, image, podIP string) (*runtimeapi.ContainerConfig, error) {
	env, err := podspec.Environment(r.pod, c, podIP)
	if err != nil {
		return nil, err
	}
	labels := r.selector()
	labels[labelContainerName] = c.Name
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(restarts)},
		Image:    &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: c.Image},
		Command:  podspec.Expand(c.Command, env), Args: podspec.Expand(c.Args, env),
		WorkingDir: c.WorkingDir,
		Labels:     labels, Annotations: map[string]string{annotationRestartCount: strconv.Itoa(restarts)},
		LogPath: filepath.Join(c.Name, strconv.Itoa(restarts)+".log"),
		Linux:   &runtimeapi.LinuxContainerConfig{Resources: resources(c.Resources), SecurityContext: securityContext(r.pod, c)},
	}
	for _, e := range env {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	for _, m := range podspec.Mounts(r.pod, c, env) {
		source, err := podspec.Source(filepath.Join(r.dir, podfiles.Volumes, m.Name), &m)
		if err != nil {
			return nil, err
		}
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: source, ContainerPath: m.MountPath, Readonly: m.ReadOnly})
	}
	return config, nil
}

// resources keeps the limits of pkg/kubelet/cm: 1024 shares per CPU and at least 2, and a
// quota per 100 ms of at least 1 ms.
func resources(spec v1.ResourceRequirements) *runtimeapi.LinuxContainerResources {
	const period = 100_000 // µs
	request, requested := spec.Requests[v1.ResourceCPU]
	limit, limited := spec.Limits[v1.ResourceCPU]
	if !requested {
		request = limit
	}
	r := &runtimeapi.LinuxContainerResources{CpuShares: min(max(request.MilliValue()*1024/1000, 2), 262144)}
	if limited && !limit.IsZero() {
		r.CpuPeriod, r.CpuQuota = period, max(limit.MilliValue()*period/1000, 1000)
	}
	if memory, limited := spec.Limits[v1.ResourceMemory]; limited {
		r.MemoryLimitInBytes = memory.Value()
	}
	return r
}

func securityContext(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerSecurityContext {
	p, s := ptr.Deref(pod.Spec.SecurityContext, v1.PodSecurityContext{}), ptr.Deref(c.SecurityContext, v1.SecurityContext{})
	id := func(own, ofPod *int64) *runtimeapi.Int64Value {
		if own = cmp.Or(own, ofPod); own == nil {
			return nil
		}
		return &runtimeapi.Int64Value{Value: *own}
	}
	config := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod),
		Privileged:       ptr.Deref(s.Privileged, false),
		ReadonlyRootfs:   ptr.Deref(s.ReadOnlyRootFilesystem, false),
		NoNewPrivs:       !ptr.Deref(s.AllowPrivilegeEscalation, true),
		RunAsUser:        id(s.RunAsUser, p.RunAsUser),
		RunAsGroup:       id(s.RunAsGroup, p.RunAsGroup),
	}
	if s.Capabilities != nil {
		config.Capabilities = &runtimeapi.Capability{}
		for _, capability := range s.Capabilities.Add {
			config.Capabilities.AddCapabilities = append(config.Capabilities.AddCapabilities, string(capability))
		}
		for _, capability := range s.Capabilities.Drop {
			config.Capabilities.DropCapabilities = append(config.Capabilities.DropCapabilities, string(capability))
		}
	}
	return config
}

func (r *Runtime) logFile(container string, restarts int) string {
	return filepath.Join(r.dir, podfiles.Logs, container, strconv.Itoa(restarts)+".log")
}

// makeLogsDir creates the directory for a container's logs. It removes old logs, so that
// there are at most podfiles.MaxLogFiles with the new one. It also removes the logs of an
// earlier pod, because the runtime would append to them.
func (r *Runtime) makeLogsDir(container string, restarts int) error {
	dir := filepath.Join(r.dir, podfiles.Logs, container)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		number, isLog := strings.CutSuffix(e.Name(), ".log")
		n, err := strconv.Atoi(number)
		if !isLog || err != nil || n < restarts && n > restarts-podfiles.MaxLogFiles {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
