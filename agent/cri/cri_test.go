// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	utilexec "k8s.io/utils/exec"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

var _ agent.Runtime = (*Runtime)(nil)

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
		require.Equal(t, restarts, i.RestartCount)
		require.Equal(t, restart.ContainerStateRunning, i.State)
		require.False(t, i.StartedAt.IsZero())
		require.True(t, i.FinishedAt.IsZero())
		f.exit(id, int32(restarts))
		i = r.state(t).Instances["main"]
		require.Equal(t, restart.ContainerStateExited, i.State)
		require.EqualValues(t, restarts, i.ExitCode)
		require.False(t, i.FinishedAt.IsZero())
		require.Empty(t, i.Reason, "the exit code says all")
	}
	require.Len(t, f.Containers, 2, "the newest and the one before")
	require.Contains(t, f.Containers, ids[2])
	before := r.state(t).Instances["main"]
	require.NoError(t, r.Stop(t.Context(), ids[3], 0))
	require.NotContains(t, f.stopped, ids[3])
	require.Equal(t, before, r.state(t).Instances["main"], "its end stays as it was")

	id := r.start(t, 0, 4)
	f.InjectError("StopContainer", status.Error(codes.Unavailable, "no connection"))
	require.ErrorContains(t, r.Stop(t.Context(), id, 0), "no connection")
	require.NoError(t, r.Stop(t.Context(), id, 1500*time.Millisecond))
	require.EqualValues(t, 2, f.stopped[id], "seconds, rounded up")
	f.InjectError("ContainerStatus", status.Error(codes.Unavailable, "no connection"))
	require.NoError(t, r.Stop(t.Context(), id, 0))
	require.Zero(t, f.stopped[id])
	f.InjectError("StopContainer", status.Error(codes.NotFound, "no such container"))
	require.NoError(t, r.Stop(t.Context(), "gone", 0))
}

// The stops of instances begin one after another, but none waits for another's grace
// period.
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

// State asks only for the statuses of changed instances.
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
	require.Equal(t, 1, second.state(t).Instances["main"].RestartCount)

	_, err = newRuntime(t.Context(), f, apitest.NewFakeImageService(), pod, filepath.Join(t.TempDir(), "u1"), nil)
	require.ErrorContains(t, err, "pod default/web exists already, with its files in "+filepath.Join(root, "u1"))

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
	require.ErrorContains(t, err, "no ready sandbox")
	require.NoError(t, r.CreateSandbox(t.Context()))
	require.EqualValues(t, 1, f.sandbox.Metadata.Attempt)
	now := r.state(t)
	require.True(t, now.SandboxReady)
	require.Equal(t, old.Instances["main"].ID, now.Instances["main"].ID, "the exits are still there")
	require.EqualValues(t, 137, now.Instances["main"].ExitCode)
	// The old sandbox is removed with the last instance in it.
	for restarts := 1; restarts <= 2; restarts++ {
		require.Len(t, f.Sandboxes, 2)
		for i := range 2 {
			f.exit(r.start(t, i, restarts), 1)
		}
	}
	require.Len(t, f.Sandboxes, 1)
	require.Len(t, f.Containers, 4)

	// A second ready sandbox, or one in another network, counts as lost.
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

// With the systemd driver, containerd refuses a sandbox without a slice.
func TestCgroupParent(t *testing.T) {
	of := func(f *fakeRuntime) string {
		r, _ := open(t, f, testPod("main"), t.TempDir())
		require.NoError(t, r.CreateSandbox(t.Context()))
		return f.sandbox.Linux.CgroupParent
	}
	driver := func(d runtimeapi.CgroupDriver) *fakeRuntime {
		f := newFake()
		f.FakeLinuxConfiguration = &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: d}
		return f
	}
	require.Equal(t, "/crashloop.slice", of(driver(runtimeapi.CgroupDriver_SYSTEMD)))
	require.Empty(t, of(driver(runtimeapi.CgroupDriver_CGROUPFS)))
	require.Empty(t, of(newFake()), "it reports no driver")
	old := driver(runtimeapi.CgroupDriver_SYSTEMD)
	old.InjectError("RuntimeConfig", status.Error(codes.Unimplemented, "unknown method"))
	require.Empty(t, of(old))
	broken := newFake()
	broken.InjectError("RuntimeConfig", status.Error(codes.Unavailable, "no connection"))
	_, err := newRuntime(t.Context(), broken, nil, testPod("main"), t.TempDir(), nil)
	require.ErrorContains(t, err, "no connection")
}

func TestStartFails(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	f.exit(r.start(t, 0, 0), 3)
	f.InjectError("StartContainer", errors.New("no such file"))
	id := r.start(t, 0, 1)
	i := r.state(t).Instances["main"]
	require.Equal(t, id, i.ID)
	require.Equal(t, 1, i.RestartCount)
	require.Equal(t, restart.ContainerStateExited, i.State)
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
	require.Equal(t, 2, r.state(t).Instances["main"].RestartCount)
}

// An agent that ended between creation and start leaves an instance that never ran. The
// next one replaces it.
func TestCreatedIsNoInstance(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	f.exit(r.start(t, 0, 0), 3)
	config, err := r.containerConfig(&r.pod.Spec.Containers[0], 1, "image", "")
	require.NoError(t, err)
	left, err := f.CreateContainer(t.Context(), r.sandbox.Id, config, f.sandbox)
	require.NoError(t, err)
	require.Equal(t, 0, r.state(t).Instances["main"].RestartCount)
	config.Labels = map[string]string{"not": "ours"}
	f.Containers["foreign"] = &apitest.FakeContainer{ContainerStatus: runtimeapi.ContainerStatus{Id: "foreign", Metadata: config.Metadata}, SandboxID: r.sandbox.Id}
	f.InjectError("RemoveContainer", errors.New("busy"))
	_, err = r.Start(t.Context(), &r.pod.Spec.Containers[0], 1)
	require.EqualError(t, err, "busy")
	require.Equal(t, left, r.start(t, 0, 1), "the fake's name for the same attempt")
	require.Equal(t, restart.ContainerStateRunning, r.state(t).Instances["main"].State)
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

// hurried is a context whose deadline is always near.
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
