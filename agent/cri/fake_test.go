// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
)

// fakeRuntime adds to upstream's fake: containers end with their sandbox and are removed
// with it, configurations are kept, and commands have results.
type fakeRuntime struct {
	*apitest.FakeRuntimeService
	configs  map[string]*runtimeapi.ContainerConfig
	sandbox  *runtimeapi.PodSandboxConfig
	stopped  map[string]int64
	stopping func(slow bool)
	exec     func(timeout time.Duration) (stdout, stderr string, err error)
	events   chan *runtimeapi.ContainerEventResponse
	breakOff chan struct{}
}

func newFake() *fakeRuntime {
	return &fakeRuntime{
		FakeRuntimeService: apitest.NewFakeRuntimeService(),
		configs:            map[string]*runtimeapi.ContainerConfig{}, stopped: map[string]int64{},
		events: make(chan *runtimeapi.ContainerEventResponse), breakOff: make(chan struct{}),
	}
}

func (f *fakeRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	f.sandbox = config
	return f.FakeRuntimeService.RunPodSandbox(ctx, config, handler)
}

func (f *fakeRuntime) StopPodSandbox(ctx context.Context, id string) error {
	for _, c := range f.in(id) {
		f.exit(c, 137)
	}
	return f.FakeRuntimeService.StopPodSandbox(ctx, id)
}

func (f *fakeRuntime) RemovePodSandbox(ctx context.Context, id string) error {
	for _, c := range f.in(id) {
		delete(f.Containers, c)
	}
	return f.FakeRuntimeService.RemovePodSandbox(ctx, id)
}

func (f *fakeRuntime) in(sandbox string) (ids []string) {
	f.Lock()
	defer f.Unlock()
	for id, c := range f.Containers {
		if c.SandboxID == sandbox {
			ids = append(ids, id)
		}
	}
	return ids
}

func (f *fakeRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	id, err := f.FakeRuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
	if err == nil {
		f.configs[id] = config
	}
	return id, err
}

func (f *fakeRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	if f.stopping != nil {
		f.stopping(id == "slow")
		return nil
	}
	f.stopped[id] = timeout
	return f.FakeRuntimeService.StopContainer(ctx, id, timeout)
}

func (f *fakeRuntime) ExecSync(_ context.Context, _ string, _ []string, timeout time.Duration) ([]byte, []byte, error) {
	stdout, stderr, err := f.exec(timeout)
	return []byte(stdout), []byte(stderr), err
}

func (f *fakeRuntime) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, _ func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.breakOff:
			return errors.New("the stream broke")
		case e := <-f.events:
			events <- e
		}
	}
}

// exit ends an instance.
func (f *fakeRuntime) exit(id string, code int32) {
	f.Lock()
	defer f.Unlock()
	c := f.Containers[id]
	if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
		c.State, c.ExitCode, c.FinishedAt, c.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano(), "Error"
	}
}

// calls counts the calls of a method.
func (f *fakeRuntime) calls(method string) (n int) {
	for _, c := range f.GetCalls() {
		if c == method {
			n++
		}
	}
	return n
}

// written collects the output of containers.
type written struct {
	sync.Mutex
	lines []string
}

func (w *written) output(container string, line []byte) {
	w.Lock()
	defer w.Unlock()
	w.lines = append(w.lines, container+": "+string(line))
	clear(line) // It is ours.
}

func (w *written) all() []string {
	w.Lock()
	defer w.Unlock()
	return slices.Clone(w.lines)
}

func testPod(containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1", Labels: map[string]string{"app": "web"}}}
	for _, name := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Image: "image", ImagePullPolicy: v1.PullIfNotPresent})
	}
	return pod
}

// open returns a new runtime for the pod, as for a new agent.
func open(t *testing.T, f *fakeRuntime, pod *v1.Pod, dir string) (*Runtime, *written) {
	t.Helper()
	images := apitest.NewFakeImageService()
	images.SetFakeImages([]string{"image"})
	w := &written{}
	r, err := newRuntime(t.Context(), f, images, pod, dir, w.output)
	require.NoError(t, err)
	t.Cleanup(func() { r.cancel(); r.wg.Wait(); r.logs.wg.Wait() })
	return r, w
}

// started returns a runtime with a pod that has a sandbox.
func started(t *testing.T, pod *v1.Pod) (*Runtime, *fakeRuntime, *written) {
	t.Helper()
	f := newFake()
	r, w := open(t, f, pod, t.TempDir())
	require.NoError(t, r.CreateSandbox(t.Context()))
	return r, f, w
}

func (r *Runtime) start(t *testing.T, i, restarts int) string {
	t.Helper()
	id, err := r.Start(t.Context(), &r.pod.Spec.Containers[i], restarts)
	require.NoError(t, err)
	return id
}

func (r *Runtime) state(t *testing.T) agent.State {
	t.Helper()
	s, err := r.State(t.Context())
	require.NoError(t, err)
	return s
}
