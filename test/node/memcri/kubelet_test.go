// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kubelet calls a runtime as a kubelet does, and fails the test if a call fails.
type kubelet struct {
	*testing.T
	*Runtime
}

func (k kubelet) sandbox(pod string) (string, *runtimeapi.PodSandboxConfig) {
	k.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod, Namespace: "default", Uid: "uid-" + pod},
		Labels:       map[string]string{labelPod: pod, labelUID: "uid-" + pod},
		LogDirectory: k.TempDir(),
	}
	answer, err := k.RunPodSandbox(k.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	require.NoError(k, err)
	return answer.PodSandboxId, config
}

func (k kubelet) create(sandbox string, config *runtimeapi.PodSandboxConfig, name string, attempt uint32, lives ...string) (string, error) {
	answer, err := k.CreateContainer(k.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			Image:    &runtimeapi.ImageSpec{Image: "image"},
			Args:     lives, LogPath: name + ".log",
			Labels: map[string]string{labelPod: config.Metadata.Name, labelUID: config.Metadata.Uid, labelContainer: name},
		},
	})
	return answer.GetContainerId(), err
}

// run creates and starts a container.
func (k kubelet) run(sandbox string, config *runtimeapi.PodSandboxConfig, name string, attempt uint32, lives ...string) string {
	k.Helper()
	id, err := k.create(sandbox, config, name, attempt, lives...)
	require.NoError(k, err)
	k.start(id)
	return id
}

func (k kubelet) start(id string) {
	k.Helper()
	_, err := k.StartContainer(k.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	require.NoError(k, err)
}

func (k kubelet) stop(id string, timeout int64) {
	k.Helper()
	_, err := k.StopContainer(k.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout})
	require.NoError(k, err)
}

func (k kubelet) status(id string) *runtimeapi.ContainerStatus {
	k.Helper()
	answer, err := k.ContainerStatus(k.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	require.NoError(k, err)
	return answer.Status
}

// onRuntime runs a test in a synctest bubble, in which time advances only when all
// goroutines wait.
func onRuntime(t *testing.T, o Options, test func(k kubelet)) {
	synctest.Test(t, func(t *testing.T) { test(kubelet{t, New(o)}) })
}
