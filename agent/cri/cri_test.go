// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	utilexec "k8s.io/utils/exec"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
	"github.com/kubelet-backoff/kubelet-backoff/agent/manifest"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

var _ agent.Runtime = (*Runtime)(nil)

// fakeRuntime adds what upstream's fake leaves out: containers end and go with
// their sandbox, configurations are kept, and commands have results.
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

// calls counts those of a method.
func (f *fakeRuntime) calls(method string) (n int) {
	for _, c := range f.GetCalls() {
		if c == method {
			n++
		}
	}
	return n
}

// written collects what containers wrote.
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

// open makes a runtime for the pod, as an agent that starts does.
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

// started makes a runtime whose pod has a sandbox.
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

func TestInstances(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	s := r.state(t)
	require.True(t, s.SandboxReady)
	require.Equal(t, apitest.FakePodSandboxIPs[0], s.IP)
	require.Empty(t, s.Instances)
	var ids []string
	for restarts := range 4 {
		id := r.start(t, 0, restarts)
		ids = append(ids, id)
		i := r.state(t).Instances["main"]
		require.Equal(t, id, i.ID)
		require.Equal(t, restarts, i.Restarts)
		require.Equal(t, restartpod.StateRunning, i.State)
		require.False(t, i.StartedAt.IsZero())
		require.True(t, i.FinishedAt.IsZero())
		f.exit(id, int32(restarts))
		i = r.state(t).Instances["main"]
		require.Equal(t, restartpod.StateExited, i.State)
		require.EqualValues(t, restarts, i.ExitCode)
		require.False(t, i.FinishedAt.IsZero())
		require.Empty(t, i.Reason, "the exit code says all")
	}
	require.Len(t, f.Containers, 2, "the newest and the one before")
	require.Contains(t, f.Containers, ids[2])
	require.NoError(t, r.Stop(t.Context(), ids[3], 1500*time.Millisecond))
	require.EqualValues(t, 2, f.stopped[ids[3]], "seconds, rounded up")
	require.NoError(t, r.Stop(t.Context(), ids[3], 0))
	require.Zero(t, f.stopped[ids[3]])
	f.InjectError("StopContainer", status.Error(codes.NotFound, "no such container"))
	require.NoError(t, r.Stop(t.Context(), "gone", 0))
	f.InjectError("StopContainer", status.Error(codes.Unavailable, "no connection"))
	require.ErrorContains(t, r.Stop(t.Context(), ids[3], 0), "no connection")
}

// Instances are begun to be stopped one after the other, but none waits for the
// end of another's grace period.
func TestManyStops(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	var mu sync.Mutex
	now, most, all := 0, 0, 0
	release := make(chan struct{})
	f.stopping = func(slow bool) {
		mu.Lock()
		now, all = now+1, all+1
		most = max(most, now)
		mu.Unlock()
		if slow {
			<-release
		} else {
			<-time.After(5 * time.Millisecond)
		}
		mu.Lock()
		now--
		mu.Unlock()
	}
	var wg sync.WaitGroup
	stop := func(id string) {
		for range 10 {
			wg.Go(func() { _ = r.Stop(t.Context(), id, 0) })
		}
	}
	stop("fast")
	wg.Wait()
	require.Less(t, most, 5, "at once")
	stop("slow")
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return all == 20 }, time.Minute, 5*time.Millisecond)
	close(release)
	wg.Wait()
}

func TestReason(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	id := r.start(t, 0, 0)
	f.exit(id, 137)
	f.Containers[id].Reason, f.Containers[id].Message = "OOMKilled", "too much"
	i := r.state(t).Instances["main"]
	require.Equal(t, "OOMKilled", i.Reason)
	require.Equal(t, "too much", i.Message)
}

// Statuses are asked for only where something has changed.
func TestManyContainers(t *testing.T) {
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	r, f, _ := started(t, testPod(names...))
	for i := range names {
		r.start(t, i, 0)
	}
	require.Len(t, r.state(t).Instances, 200)
	require.Equal(t, 200, f.calls("ContainerStatus"))
	r.state(t)
	require.Equal(t, 200, f.calls("ContainerStatus"))
	f.exit(r.state(t).Instances["c7"].ID, 3)
	require.EqualValues(t, 3, r.state(t).Instances["c7"].ExitCode)
	require.Equal(t, 201, f.calls("ContainerStatus"))
	require.Equal(t, 1, f.calls("PodSandboxStatus"))
}

func TestAdoption(t *testing.T) {
	root := t.TempDir()
	f := newFake()
	pod := testPod("main", "other")
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	// A kubelet's pod of the same name, and one of ours.
	kubelets := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "kubelet"},
		Labels:   map[string]string{labelPodName: "web", labelPodNamespace: "default", labelPodUID: "kubelet"},
	}
	kept, err := f.RunPodSandbox(t.Context(), kubelets, "")
	require.NoError(t, err)
	first, _ := open(t, f, pod, filepath.Join(root, "u1"))
	require.NoError(t, first.CreateSandbox(t.Context()))
	main := first.start(t, 0, 0)
	f.exit(main, 1)
	main = first.start(t, 0, 1)
	other := first.start(t, 1, 0)
	f.exit(other, 4)
	before := first.state(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "u1", "kept"), nil, 0o644))

	second, _ := open(t, f, pod, filepath.Join(root, "u1"))
	require.Equal(t, before, second.state(t))
	require.Equal(t, main, second.state(t).Instances["main"].ID)
	require.Equal(t, 1, second.state(t).Instances["main"].Restarts)

	_, err = newRuntime(t.Context(), f, apitest.NewFakeImageService(), pod, filepath.Join(t.TempDir(), "u1"), nil)
	require.ErrorContains(t, err, "pod default/web is there already, with its files in "+filepath.Join(root, "u1"))

	changed := pod.DeepCopy()
	changed.UID = "u2"
	third, _ := open(t, f, changed, filepath.Join(root, "u2"))
	require.Equal(t, agent.State{Instances: map[string]agent.Instance{}}, third.state(t))
	require.Empty(t, f.Containers)
	require.Len(t, f.Sandboxes, 1)
	require.Contains(t, f.Sandboxes, kept)
	require.NoDirExists(t, filepath.Join(root, "u1", "volumes"))
	require.FileExists(t, filepath.Join(root, "u1", "kept"))
}

func TestSandboxLost(t *testing.T) {
	r, f, _ := started(t, testPod("main", "other"))
	r.start(t, 0, 0)
	r.start(t, 1, 0)
	old := r.state(t)
	for id, s := range f.Sandboxes {
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		require.NoError(t, f.StopPodSandbox(t.Context(), id))
	}
	lost := r.state(t)
	require.False(t, lost.SandboxReady)
	require.Empty(t, lost.IP)
	_, err := r.Start(t.Context(), &r.pod.Spec.Containers[0], 1)
	require.ErrorContains(t, err, "no sandbox that is ready")
	require.NoError(t, r.CreateSandbox(t.Context()))
	require.EqualValues(t, 1, f.sandbox.Metadata.Attempt)
	now := r.state(t)
	require.True(t, now.SandboxReady)
	require.Equal(t, old.Instances["main"].ID, now.Instances["main"].ID, "the exits are still there")
	require.EqualValues(t, 137, now.Instances["main"].ExitCode)
	// The old sandbox goes with the last instance in it.
	for restarts := 1; restarts <= 2; restarts++ {
		require.Len(t, f.Sandboxes, 2)
		for i := range 2 {
			f.exit(r.start(t, i, restarts), 1)
		}
	}
	require.Len(t, f.Sandboxes, 1)
	require.Len(t, f.Containers, 4)

	// Another sandbox that is ready, or one on another network, will not do.
	config := r.sandboxConfig(7)
	config.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	_, err = f.RunPodSandbox(t.Context(), config, "")
	require.NoError(t, err)
	require.False(t, r.state(t).SandboxReady)
	require.NoError(t, f.StopPodSandbox(t.Context(), r.sandbox.Id))
	require.False(t, r.state(t).SandboxReady)
	require.NoError(t, r.CreateSandbox(t.Context()))
	require.EqualValues(t, 8, f.sandbox.Metadata.Attempt)
	require.True(t, r.state(t).SandboxReady)
}

func TestHostNetwork(t *testing.T) {
	pod := testPod()
	pod.Spec.HostNetwork = true
	r, f, _ := started(t, pod)
	require.Equal(t, "127.0.0.1", r.state(t).IP)
	require.True(t, r.state(t).SandboxReady)
	require.Empty(t, f.sandbox.Hostname, "the node's")
}

func TestStartFails(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	f.exit(r.start(t, 0, 0), 3)
	f.InjectError("StartContainer", errors.New("no such file"))
	id := r.start(t, 0, 1)
	i := r.state(t).Instances["main"]
	require.Equal(t, id, i.ID)
	require.Equal(t, 1, i.Restarts)
	require.Equal(t, restartpod.StateExited, i.State)
	require.EqualValues(t, agent.ExitCodeStartError, i.ExitCode)
	require.Equal(t, agent.ReasonStartError, i.Reason)
	require.Equal(t, "no such file", i.Message)
	require.False(t, i.FinishedAt.IsZero())
	r.start(t, 0, 2)
	require.Len(t, f.Containers, 2)
	require.Contains(t, f.Containers, id)

	f.InjectError("CreateContainer", errors.New("disk full"))
	_, err := r.Start(t.Context(), &r.pod.Spec.Containers[0], 3)
	require.EqualError(t, err, "CreateContainerError: disk full")
	require.Equal(t, 2, r.state(t).Instances["main"].Restarts)
}

// An agent that ended before it could start what it had made leaves an instance
// that never ran and whose place the next one takes.
func TestCreatedIsNoInstance(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	f.exit(r.start(t, 0, 0), 3)
	config, err := r.containerConfig(&r.pod.Spec.Containers[0], 1, "image", "")
	require.NoError(t, err)
	left, err := f.CreateContainer(t.Context(), r.sandbox.Id, config, f.sandbox)
	require.NoError(t, err)
	require.Equal(t, 0, r.state(t).Instances["main"].Restarts)
	config.Labels = map[string]string{"not": "ours"}
	f.Containers["foreign"] = &apitest.FakeContainer{ContainerStatus: runtimeapi.ContainerStatus{Id: "foreign", Metadata: config.Metadata}, SandboxID: r.sandbox.Id}
	f.InjectError("RemoveContainer", errors.New("busy"))
	_, err = r.Start(t.Context(), &r.pod.Spec.Containers[0], 1)
	require.EqualError(t, err, "busy")
	require.Equal(t, left, r.start(t, 0, 1), "the fake's name for the same attempt")
	require.Equal(t, restartpod.StateRunning, r.state(t).Instances["main"].State)
	require.Contains(t, f.Containers, "foreign")
}

func TestImages(t *testing.T) {
	for _, tc := range []struct {
		policy  v1.PullPolicy
		present bool
		pull    error
		calls   []string
		err     string
	}{
		{policy: v1.PullIfNotPresent, present: true, calls: []string{"ImageStatus"}},
		{policy: v1.PullIfNotPresent, calls: []string{"ImageStatus", "PullImage"}},
		{policy: v1.PullAlways, present: true, calls: []string{"PullImage"}},
		{policy: v1.PullNever, present: true, calls: []string{"ImageStatus"}},
		{policy: v1.PullNever, calls: []string{"ImageStatus"}, err: `ErrImageNeverPull: container image "image" is not present with pull policy of Never`},
		{policy: v1.PullAlways, pull: errors.New("no route"), calls: []string{"PullImage"}, err: "ErrImagePull: no route"},
	} {
		t.Run(fmt.Sprint(tc.policy, tc.present, tc.pull), func(t *testing.T) {
			r, f, _ := started(t, testPod("main"))
			images := apitest.NewFakeImageService()
			r.images = images
			if tc.present {
				images.SetFakeImages([]string{"image"})
			}
			images.InjectError("PullImage", tc.pull)
			r.pod.Spec.Containers[0].ImagePullPolicy = tc.policy
			id, err := r.Start(t.Context(), &r.pod.Spec.Containers[0], 0)
			require.Equal(t, tc.calls, images.Called)
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				require.Empty(t, f.Containers)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "image", f.configs[id].Image.Image)
		})
	}
}

func TestExec(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	f.exec = func(timeout time.Duration) (string, string, error) {
		require.Zero(t, timeout)
		return "out", "err", utilexec.CodeExitError{Err: errors.New("exited"), Code: 3}
	}
	output, code, err := r.Exec(t.Context(), "id", []string{"true"})
	require.NoError(t, err)
	require.Equal(t, 3, code)
	require.Equal(t, "outerr", string(output))

	ctx := hurried{t.Context()}
	f.exec = func(timeout time.Duration) (string, string, error) {
		require.Equal(t, time.Second, timeout)
		return strings.Repeat("x", 20<<10), "", nil
	}
	output, code, err = r.Exec(ctx, "id", []string{"true"})
	require.NoError(t, err)
	require.Zero(t, code)
	require.Len(t, output, 10<<10)

	f.exec = func(time.Duration) (string, string, error) { return "", "", errors.New("timed out") }
	_, _, err = r.Exec(ctx, "id", []string{"true"})
	require.EqualError(t, err, "timed out")
}

// hurried is a context with a deadline that is always near.
type hurried struct{ context.Context }

func (hurried) Deadline() (time.Time, bool) { return time.Now().Add(90 * time.Millisecond), true }

func TestChanged(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	event := func(uid string) {
		f.events <- &runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}}}
	}
	event("u1")
	<-r.Changed()
	f.breakOff <- struct{}{}
	event("another") // Is taken by the new stream.
	event("u1")
	<-r.Changed()
	<-r.Changed() // Without an event.
}

func TestUnavailable(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	id := r.start(t, 0, 0)
	for _, method := range []string{"ListPodSandbox", "ListContainers", "ContainerStatus"} {
		f.InjectError(method, status.Error(codes.Unavailable, "no connection"))
		_, err := r.State(t.Context())
		require.ErrorContains(t, err, "no connection", method)
	}
	require.Equal(t, id, r.state(t).Instances["main"].ID)
	f.InjectError("StopPodSandbox", status.Error(codes.Unavailable, "no connection"))
	require.ErrorContains(t, r.Remove(t.Context()), "no connection")
	require.Contains(t, f.Containers, id)
	require.NoError(t, r.Remove(t.Context()))
	require.Empty(t, f.Sandboxes)
	require.Empty(t, f.Containers)
}

func TestNoEndpoint(t *testing.T) {
	endpoint := "unix://" + filepath.Join(t.TempDir(), "sock")
	_, err := New(t.Context(), endpoint, testPod(), t.TempDir(), nil)
	require.ErrorContains(t, err, "runtime endpoint "+endpoint)
}

func TestOutput(t *testing.T) {
	r, f, w := started(t, testPod("main", "other"))
	id := r.start(t, 0, 0)
	other := r.start(t, 1, 0)
	file := r.logFile("main", 0)
	require.Equal(t, file, filepath.Join(f.sandbox.LogDirectory, f.configs[id].LogPath))
	log := func(file string, entries ...string) {
		t.Helper()
		to, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		defer to.Close()
		for _, e := range entries {
			_, err := fmt.Fprintf(to, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), e)
			require.NoError(t, err)
		}
	}
	seen := func(w *written, lines ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(w.all()) >= len(lines) }, time.Minute, 5*time.Millisecond)
		require.Equal(t, lines, w.all())
	}
	log(file, "stdout F one", "stdout P two", "stderr F three", "stdout F , the end", "stdout F ")
	seen(w, "main: one", "main: three", "main: two, the end", "main: ")
	log(r.logFile("other", 0), "stdout P never ended")
	log(file, "stdout F five")
	seen(w, "main: one", "main: three", "main: two, the end", "main: ", "main: five")

	// The next agent gives what is new.
	require.NoError(t, r.Close())
	next, w := open(t, f, r.pod, r.dir)
	log(file, "stdout F six")
	seen(w, "main: six")
	f.exit(id, 0)
	f.exit(other, 0)
	next.state(t)
	require.NoError(t, next.logs.finish(t.Context()))

	// A new instance gets a new file; all that it wrote is given before Remove returns.
	log(next.logFile("main", 1), "stdout F of a pod before")
	id = next.start(t, 0, 1)
	f.exit(id, 0)
	log(next.logFile("main", 1), "stdout F seven", "stderr P eight")
	require.NoError(t, next.Remove(t.Context()))
	require.Equal(t, []string{"main: six", "main: seven", "main: eight"}, w.all())
	require.FileExists(t, file, "logs stay")
}

// What was read already is not given again when a log has to be read anew.
func TestOutputAgain(t *testing.T) {
	var got []string
	l := &follower{}
	stdout := &lines{ctx: t.Context(), follower: l, write: func(line []byte) { got = append(got, string(line)) }}
	entries := []string{"one\n", "two, ", "the end\n", "three\n"}
	for n := range entries {
		l.skip = l.seen
		for _, e := range entries[:n+1] {
			_, err := stdout.Write([]byte(e))
			require.NoError(t, err)
		}
	}
	require.Equal(t, []string{"one", "two, the end", "three"}, got)
	_, err := stdout.Write(bytes.Repeat([]byte("x"), maxLine+1))
	require.NoError(t, err)
	require.Len(t, got, 4, "a line without an end")
	stdout.flush()
	require.Len(t, got, 4)
}

// A new instance's lines come when the old one's are through.
func TestOutputInOrder(t *testing.T) {
	w := &written{}
	f := newFollowers(newFake(), w.output)
	dir := t.TempDir()
	entry := func(file string) {
		t.Helper()
		line := time.Now().UTC().Format(time.RFC3339Nano) + " stdout F " + file + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(line), 0o644))
	}
	entry("new")
	entry("another's")
	for _, i := range []struct{ container, file string }{{"main", "old"}, {"main", "new"}, {"other", "another's"}} {
		f.follow(t.Context(), i.file, i.container, filepath.Join(dir, i.file), time.Time{})
	}
	require.Eventually(t, func() bool { return len(w.all()) > 0 }, time.Minute, 5*time.Millisecond)
	entry("old")
	require.NoError(t, f.finish(t.Context()))
	require.Equal(t, []string{"other: another's", "main: old", "main: new"}, w.all())
}

func TestLogsKept(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	dir := filepath.Join(r.dir, podfiles.Logs, "main")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"9.log", "0.log", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o644))
	}
	for restarts := range 7 {
		f.exit(r.start(t, 0, restarts), 0)
		require.NoError(t, os.WriteFile(r.logFile("main", restarts), nil, 0o644))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"2.log", "3.log", "4.log", "5.log", "6.log", "notes.txt"}, names)
}

func TestConfig(t *testing.T) {
	pod := testPod("main")
	pod.Annotations = map[string]string{"note": "n"}
	pod.Name = strings.Repeat("a", 62) + ".b"
	pod.Spec.ShareProcessNamespace, pod.Spec.HostIPC = ptr.To(true), true
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}, {Name: "kube-api-access-x"}}
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

// What is honoured has no warning and no error.
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
	manifest.Default(pod)
	warnings, errs := manifest.Validate(pod, restartpod.Gates{}, Support)
	require.Empty(t, errs)
	require.Empty(t, warnings)
	c.SecurityContext.SELinuxOptions = &v1.SELinuxOptions{Level: "s0"}
	warnings, _ = manifest.Validate(pod, restartpod.Gates{}, Support)
	require.Len(t, warnings, 1)
	require.Equal(t, "not honoured by the cri runtime: spec.containers[0].securityContext.seLinuxOptions", warnings[0].Detail)
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
