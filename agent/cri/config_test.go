// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
)

func TestConfig(t *testing.T) {
	pod := testPod("main")
	pod.Annotations = map[string]string{"note": "n"}
	pod.Name = strings.Repeat("a", 62) + ".b"
	pod.Spec.ShareProcessNamespace, pod.Spec.HostIPC = ptr.To(true), true
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}, {Name: "kube-api-access-x", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}}}
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To[int64](1), RunAsGroup: ptr.To[int64](2)}
	c := &pod.Spec.Containers[0]
	c.Command, c.Args, c.WorkingDir = []string{"/run", "$(A)"}, []string{"$(IP)"}, "/work"
	c.Env = []v1.EnvVar{{Name: "A", Value: "a"}, {Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true}, {Name: "kube-api-access-x", MountPath: "/var/run"}}
	c.SecurityContext = &v1.SecurityContext{
		RunAsUser: ptr.To[int64](3), Privileged: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
		Capabilities: &v1.Capabilities{Add: []v1.Capability{"SYS_TIME"}, Drop: []v1.Capability{"ALL"}},
	}
	r, f, _ := started(t, pod)
	info, err := os.Stat(filepath.Join(r.dir, "volumes", "data"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o777), info.Mode().Perm())
	namespaces := &runtimeapi.NamespaceOption{Ipc: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_POD}
	require.Equal(t, &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: "default", Uid: "u1"},
		Hostname:     strings.Repeat("a", 62),
		LogDirectory: filepath.Join(r.dir, "logs"),
		Labels: map[string]string{
			"app": "web", "io.kubernetes.pod.name": pod.Name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "u1",
			"kubelet-backoff.github.io/managed-by": "crashloop",
		},
		Annotations: map[string]string{"note": "n", "kubelet-backoff.github.io/dir": r.dir},
		Linux:       &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces, Privileged: true}},
	}, f.sandbox)
	require.Equal(t, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 3},
		Image:    &runtimeapi.ImageSpec{Image: "image", UserSpecifiedImage: "image"},
		Command:  []string{"/run", "a"}, Args: []string{apitest.FakePodSandboxIPs[0]}, WorkingDir: "/work",
		Envs:   []*runtimeapi.KeyValue{{Key: "A", Value: []byte("a")}, {Key: "IP", Value: []byte(apitest.FakePodSandboxIPs[0])}},
		Mounts: []*runtimeapi.Mount{{HostPath: filepath.Join(r.dir, "volumes", "data"), ContainerPath: "/data", Readonly: true}},
		Labels: map[string]string{
			"io.kubernetes.pod.name": pod.Name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "u1",
			"io.kubernetes.container.name": "main", "kubelet-backoff.github.io/managed-by": "crashloop",
		},
		Annotations: map[string]string{"io.kubernetes.container.restartCount": "3"},
		LogPath:     "main/3.log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: namespaces, Privileged: true, ReadonlyRootfs: true, NoNewPrivs: true,
				RunAsUser: &runtimeapi.Int64Value{Value: 3}, RunAsGroup: &runtimeapi.Int64Value{Value: 2},
				Capabilities: &runtimeapi.Capability{AddCapabilities: []string{"SYS_TIME"}, DropCapabilities: []string{"ALL"}},
			},
		},
	}, f.configs[r.start(t, 0, 3)])
}

// A field in Support has no warning and no error.
func TestSupport(t *testing.T) {
	pod := testPod("main")
	pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC = true, true, true
	pod.Spec.ShareProcessNamespace, pod.Spec.Hostname = ptr.To(false), "web"
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To[int64](1), RunAsGroup: ptr.To[int64](2)}
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true}}
	c.SecurityContext = &v1.SecurityContext{Privileged: ptr.To(true), Capabilities: &v1.Capabilities{Add: []v1.Capability{"SYS_TIME"}}}
	c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	podspec.Default(pod)
	warnings, errs := podspec.Validate(pod, Support)
	require.Empty(t, errs)
	require.Empty(t, warnings)
	c.SecurityContext.SELinuxOptions = &v1.SELinuxOptions{Level: "s0"}
	warnings, _ = podspec.Validate(pod, Support)
	require.Len(t, warnings, 1)
	require.Equal(t, "not honored by the cri runtime: spec.containers[0].securityContext.seLinuxOptions", warnings[0])
}

func TestResources(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		for name, quantity := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if quantity != "" {
				l[name] = resource.MustParse(quantity)
			}
		}
		return l
	}
	for _, tc := range []struct {
		requests, limits v1.ResourceList
		want             *runtimeapi.LinuxContainerResources
	}{
		{want: &runtimeapi.LinuxContainerResources{CpuShares: 2}},
		{requests: list("500m", "1Gi"), want: &runtimeapi.LinuxContainerResources{CpuShares: 512}},
		{limits: list("2", "64Mi"), want: &runtimeapi.LinuxContainerResources{CpuShares: 2048, CpuPeriod: 100000, CpuQuota: 200000, MemoryLimitInBytes: 64 << 20}},
		{requests: list("0", ""), limits: list("1m", ""), want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, CpuQuota: 1000}},
		{requests: list("1k", ""), want: &runtimeapi.LinuxContainerResources{CpuShares: 262144}},
	} {
		require.Equal(t, tc.want, resources(v1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits}))
	}
}
