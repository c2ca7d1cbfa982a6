// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// killedInStart is one of persistScenarios: a kubelet ends after it has created an
// instance and before it starts it, and GC has removed the exited instance.
func killedInStart(t *testing.T, e *e2e) {
	if e.crio() {
		skip(t, "only containerd tells the configuration of a container, from which this makes another one")
	}
	e.useCurve(t, persistCurve)
	p := e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "")))
	p.starting("main", 5)
	e.allWait(t, []*pod{p}, "main")
	e.Kubelet.Kill()
	p.replaceByCreated("main")
	log := e.kubeletLog(t)
	e.startKubeletWith(t, persistCurve)
	p.starting("main", 6)
	if found := decisions(t, log(), p, "main"); assert.NotEmpty(t, found) {
		assert.True(t, found[0].allowed, "the kubelet let main wait for the start that the kubelet before it was allowed: %+v", found[0])
	}
	// The created instance was the fifth restart.
	p.startingWithin("main", 7, persistCurve.Delay(5)+patience)
	p.assertWaited("main", 6, persistCurve.Delay(5))
	next := p.allowed("main")[6]
	assert.Equal(t, persistCurve.Delay(5), next.delay, "the delay of the next restart")
	assert.WithinDuration(t, p.exited("main", 6).Add(persistCurve.Delay(5)), next.retryAt, time.Millisecond, "when the next restart was due")
	p.assertAnnotated("main", containerAnnotation, "", 6)
	p.assertStarts(map[string]int{"other": 1})
	p.alwaysRunning()
}

// replaceByCreated creates the next instance of a container and removes all others, as if a
// kubelet had ended in the middle of a start.
func (p *pod) replaceByCreated(name string) {
	t := p.t
	t.Helper()
	runtime := p.runtime()
	instances := p.instances(runtime, name)
	require.NotEmpty(t, instances, "instances of %s", name)
	newest := instances[0]
	container, err := runtime.ContainerStatus(p.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: newest.Id, Verbose: true})
	require.NoError(t, err)
	config := &runtimeapi.ContainerConfig{}
	configOf(t, container.Info, config)
	sandbox, err := runtime.PodSandboxStatus(p.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: newest.PodSandboxId, Verbose: true})
	require.NoError(t, err)
	sandboxConfig := &runtimeapi.PodSandboxConfig{}
	configOf(t, sandbox.Info, sandboxConfig)

	var noted map[string]any
	require.NoError(t, json.Unmarshal([]byte(config.Annotations[containerAnnotation]), &noted))
	noted["attempts"] = noted["attempts"].(float64) + 1
	value, err := json.Marshal(noted)
	require.NoError(t, err)
	config.Annotations[containerAnnotation] = string(value)
	config.Metadata.Attempt++
	config.Annotations["io.kubernetes.container.restartCount"] = strconv.Itoa(int(config.Metadata.Attempt))
	config.LogPath = fmt.Sprintf("%s/%d.log", name, config.Metadata.Attempt)
	_, err = runtime.CreateContainer(p.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: newest.PodSandboxId, Config: config, SandboxConfig: sandboxConfig})
	require.NoError(t, err)
	for _, c := range instances {
		_, err := runtime.RemoveContainer(p.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.Id})
		require.NoError(t, err)
	}
}

// runtime returns a client of the container runtime.
func (p *pod) runtime() runtimeapi.RuntimeServiceClient {
	p.t.Helper()
	conn, err := p.DialRuntime()
	require.NoError(p.t, err)
	p.t.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// instances returns the instances of a container, newest first.
func (p *pod) instances(runtime runtimeapi.RuntimeServiceClient, name string) []*runtimeapi.Container {
	p.t.Helper()
	list, err := runtime.ListContainers(p.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(p.uid), "io.kubernetes.container.name": name},
	}})
	require.NoError(p.t, err)
	slices.SortFunc(list.Containers, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.Metadata.Attempt, a.Metadata.Attempt) })
	return list.Containers
}

// configOf decodes the configuration in the verbose status of a container or sandbox.
func configOf(t *testing.T, info map[string]string, config any) {
	t.Helper()
	var verbose struct{ Config json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(info["info"]), &verbose), "%v", info)
	require.NoError(t, json.Unmarshal(verbose.Config, config), "%s", verbose.Config)
}
