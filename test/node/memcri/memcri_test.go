// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

func TestParseLife(t *testing.T) {
	for text, want := range map[string]Life{
		"":                         {},
		"exit=0":                   {Exits: true},
		"sleep=20ms exit=3":        {Sleep: 20 * time.Millisecond, Exits: true, Code: 3},
		"needs=db sleep=1s exit=1": {Needs: "db", Sleep: time.Second, Exits: true, Code: 1},
		" term=2s ":                {Term: 2 * time.Second},
	} {
		got, err := ParseLife(text)
		assert.NoError(t, err)
		assert.Equal(t, want, got, "life %q", text)
	}
	for text, want := range map[string]string{
		"sleep=soon": `life "sleep=soon": time: invalid duration "soon"`,
		"exit=x":     `life "exit=x": strconv.ParseInt: parsing "x": invalid syntax`,
		"exits=1":    `life "exits=1": unknown word "exits"`,
		"needs=db":   `life "needs=db": needs= requires exit=`,
	} {
		_, err := ParseLife(text)
		assert.EqualError(t, err, want)
	}
}

func TestLivesAreLived(t *testing.T) {
	o := Options{Sandbox: 40 * time.Millisecond, Create: 5 * time.Millisecond, Start: 20 * time.Millisecond}
	onRuntime(t, o, func(k kubelet) {
		began := time.Now()
		sandbox, config := k.sandbox("pod")
		assert.Equal(k, 40*time.Millisecond, time.Since(began))
		lives := []string{"sleep=2s exit=3", "exit=0", ""}
		first := k.run(sandbox, config, "main", 0, lives...)
		started := began.Add(65 * time.Millisecond)
		s := k.status(first)
		assert.Equal(k, running, s.State)
		assert.Equal(k, started.UnixNano(), s.StartedAt)
		assert.FileExists(k, filepath.Join(config.LogDirectory, "main.log"))

		time.Sleep(2*time.Second - time.Nanosecond)
		assert.Equal(k, running, k.status(first).State)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		s = k.status(first)
		assert.Equal(k, exited, s.State)
		assert.EqualValues(k, 3, s.ExitCode)
		assert.Equal(k, "Error", s.Reason)
		assert.Equal(k, started.Add(2*time.Second).UnixNano(), s.FinishedAt)

		second := k.run(sandbox, config, "main", 1, lives...)
		synctest.Wait()
		assert.Equal(k, "Completed", k.status(second).Reason)
		third := k.run(sandbox, config, "main", 2, lives...)
		// All further instances have the last life, even if the kubelet counts from zero
		// again after a restart.
		fourth := k.run(sandbox, config, "main", 7, lives...)
		time.Sleep(time.Hour)
		assert.Equal(k, running, k.status(third).State)
		assert.Equal(k, running, k.status(fourth).State)

		var told []Event
		for _, e := range k.Journal(0) {
			e.At, e.Told, e.Asked = time.Time{}, time.Time{}, time.Time{}
			told = append(told, e)
		}
		event := func(attempt uint32, what string, code int32) Event {
			return Event{UID: "uid-pod", Pod: "pod", Container: "main", Attempt: attempt, What: what, Code: code}
		}
		assert.Equal(k, []Event{
			event(0, Started, 0), event(0, Exited, 3), event(1, Started, 0), event(1, Exited, 0), event(2, Started, 0), event(7, Started, 0),
		}, told)
		assert.Equal(k, started, k.Journal(0)[0].At)
		// The first start follows no exit. Nobody asked for the status of the third instance.
		ended := started.Add(2 * time.Second)
		assert.Equal(k, []time.Time{{}, ended, ended.Add(25 * time.Millisecond)}, []time.Time{k.Journal(0)[0].Told, k.Journal(0)[2].Told, k.Journal(0)[4].Told})
		assert.Zero(k, k.Journal(0)[5].Told)
		assert.Equal(k, []time.Time{began.Add(40 * time.Millisecond), ended}, []time.Time{k.Journal(0)[0].Asked, k.Journal(0)[2].Asked})
		assert.Len(k, k.Journal(4), 2)
		assert.Empty(k, k.Journal(40))
	})
}

// An instance that never started does not hide when the kubelet read the last exit.
func TestToldAfterAFailedStart(t *testing.T) {
	onRuntime(t, Options{}, func(k kubelet) {
		sandbox, config := k.sandbox("pod")
		first := k.run(sandbox, config, "main", 0, "exit=1")
		time.Sleep(time.Second)
		k.status(first)
		told := time.Now()
		time.Sleep(time.Second)
		_, err := k.create(sandbox, config, "main", 1, "exit=1")
		require.NoError(k, err)
		k.run(sandbox, config, "main", 2, "exit=1")
		journal := k.Journal(0)
		assert.Equal(k, told, journal[2].Told)
	})
}

func TestStop(t *testing.T) {
	onRuntime(t, Options{Stop: 10 * time.Millisecond}, func(k kubelet) {
		sandbox, config := k.sandbox("pod")
		for i, tc := range []struct {
			life    string
			timeout int64
			took    time.Duration
			code    int32
		}{
			{"", 30, 10 * time.Millisecond, terminated},
			{"term=2s", 30, 2*time.Second + 10*time.Millisecond, terminated},
			{"term=1m", 30, 30*time.Second + 10*time.Millisecond, killed},
			{"", 0, 10 * time.Millisecond, killed},
			// It ends by itself before.
			{"sleep=1s exit=5 term=2s", 30, time.Second, 5},
		} {
			id := k.run(sandbox, config, "main", uint32(i), slices.Repeat([]string{tc.life}, 5)...)
			// Each container has its own lives.
			k.instances["uid-pod/main"] = 0
			began := time.Now()
			k.stop(id, tc.timeout)
			assert.Equal(k, tc.took, time.Since(began), "time to stop %q within %d s", tc.life, tc.timeout)
			assert.Equal(k, tc.code, k.status(id).ExitCode, "exit code of %q after %d s", tc.life, tc.timeout)
			k.stop(id, 30)
		}
		k.stop("none", 30)
	})
}

// The timer of a container must not fire after its removal.
func TestRemoveWhileRunning(t *testing.T) {
	onRuntime(t, Options{}, func(k kubelet) {
		sandbox, config := k.sandbox("pod")
		id := k.run(sandbox, config, "main", 0, "sleep=1m exit=1")
		_, err := k.RemoveContainer(k.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
		require.NoError(k, err)
		_, err = k.ContainerStatus(k.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		assert.Equal(k, codes.NotFound, status.Code(err))
		time.Sleep(time.Hour)
		require.Len(k, k.Journal(0), 2)
		assert.EqualValues(k, killed, k.Journal(0)[1].Code)
		_, err = k.RemoveContainer(k.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
		assert.NoError(k, err)
	})
}

func TestSlots(t *testing.T) {
	onRuntime(t, Options{Start: 20 * time.Millisecond, Slots: 2}, func(k kubelet) {
		sandbox, config := k.sandbox("pod")
		began := time.Now()
		var all sync.WaitGroup
		for i := range 5 {
			id, err := k.create(sandbox, config, "main", uint32(i))
			require.NoError(k, err)
			all.Go(func() { k.start(id) })
		}
		all.Wait()
		assert.Equal(k, 60*time.Millisecond, time.Since(began), "5 starts, 2 at a time")
		id, err := k.create(sandbox, config, "main", 5)
		require.NoError(k, err)
		ctx, cancel := context.WithTimeout(k.Context(), time.Millisecond)
		defer cancel()
		_, err = k.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		assert.ErrorIs(k, err, context.DeadlineExceeded)
		assert.Equal(k, runtimeapi.ContainerState_CONTAINER_CREATED, k.status(id).State)
		assert.Empty(k, k.slots)
	})
}

func TestDependency(t *testing.T) {
	onRuntime(t, Options{}, func(k kubelet) {
		sandbox, config := k.sandbox("pod")
		const life = "needs=db sleep=1s exit=4"
		first := k.run(sandbox, config, "main", 0, life)
		other := k.run(sandbox, config, "other", 0)
		time.Sleep(time.Hour)
		assert.Equal(k, running, k.status(first).State)
		k.SetDependency("web", false)
		assert.Equal(k, running, k.status(first).State)
		k.SetDependency("db", false)
		assert.EqualValues(k, 4, k.status(first).ExitCode)
		assert.Equal(k, running, k.status(other).State)
		second := k.run(sandbox, config, "main", 1, life)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.EqualValues(k, 4, k.status(second).ExitCode)
		k.SetDependency("db", true)
		third := k.run(sandbox, config, "main", 2, life)
		time.Sleep(time.Hour)
		assert.Equal(k, running, k.status(third).State)
	})
}

// As in containerd, names are unique. So a kubelet that starts an instance twice gets
// an error.
func TestNamesBelongToOne(t *testing.T) {
	onRuntime(t, Options{}, func(k kubelet) {
		sandbox, config := k.sandbox("pod")
		id := k.run(sandbox, config, "main", 0, "exit=1")
		_, err := k.create(sandbox, config, "main", 0)
		assert.Equal(k, codes.AlreadyExists, status.Code(err))
		_, err = k.RunPodSandbox(k.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
		assert.Equal(k, codes.AlreadyExists, status.Code(err))
		_, err = k.StartContainer(k.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
		assert.Equal(k, codes.FailedPrecondition, status.Code(err))
		_, err = k.RemoveContainer(k.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
		require.NoError(k, err)
		k.run(sandbox, config, "main", 0, "exit=1")
	})
}

func TestSandboxEndsWithItsContainers(t *testing.T) {
	onRuntime(t, Options{Stop: 10 * time.Millisecond}, func(k kubelet) {
		sandbox, config := k.sandbox("pod")
		other, otherConfig := k.sandbox("other")
		id := k.run(sandbox, config, "main", 0)
		kept := k.run(other, otherConfig, "main", 0)
		for range 2 {
			_, err := k.StopPodSandbox(k.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox})
			require.NoError(k, err)
		}
		assert.EqualValues(k, killed, k.status(id).ExitCode)
		assert.Equal(k, running, k.status(kept).State)
		answer, err := k.PodSandboxStatus(k.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
		require.NoError(k, err)
		assert.Equal(k, runtimeapi.PodSandboxState_SANDBOX_NOTREADY, answer.Status.State)
		_, err = k.create(sandbox, config, "main", 1)
		assert.Equal(k, codes.FailedPrecondition, status.Code(err))
		for range 2 {
			_, err := k.RemovePodSandbox(k.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
			require.NoError(k, err)
		}
		_, err = k.PodSandboxStatus(k.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
		assert.Equal(k, codes.NotFound, status.Code(err))
		_, err = k.ContainerStatus(k.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		assert.Equal(k, codes.NotFound, status.Code(err))
		_, err = k.create(sandbox, config, "main", 1)
		assert.Equal(k, codes.NotFound, status.Code(err))
		k.sandbox("pod")
	})
}

func TestFilters(t *testing.T) {
	onRuntime(t, Options{}, func(k kubelet) {
		a, aConfig := k.sandbox("a")
		b, bConfig := k.sandbox("b")
		names := map[string]string{
			k.run(a, aConfig, "main", 0): "a/main", k.run(a, aConfig, "done", 0, "exit=1"): "a/done", k.run(b, bConfig, "main", 0): "b/main",
			a: "a", b: "b",
		}
		synctest.Wait()
		_, err := k.StopPodSandbox(k.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: b})
		require.NoError(k, err)
		var main string
		for id, name := range names {
			if name == "a/main" {
				main = id
			}
		}
		for _, tc := range []struct {
			filter *runtimeapi.ContainerFilter
			want   []string
		}{
			{nil, []string{"a/done", "a/main", "b/main"}},
			{&runtimeapi.ContainerFilter{}, []string{"a/done", "a/main", "b/main"}},
			{&runtimeapi.ContainerFilter{Id: main}, []string{"a/main"}},
			{&runtimeapi.ContainerFilter{Id: "none"}, nil},
			{&runtimeapi.ContainerFilter{PodSandboxId: a}, []string{"a/done", "a/main"}},
			{&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: running}}, []string{"a/main"}},
			{&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: exited}, PodSandboxId: b}, []string{"b/main"}},
			{&runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelContainer: "main"}}, []string{"a/main", "b/main"}},
			{&runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelContainer: "main", labelPod: "b"}}, []string{"b/main"}},
			{&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"nobody": ""}}, nil},
		} {
			answer, err := k.ListContainers(k.Context(), &runtimeapi.ListContainersRequest{Filter: tc.filter})
			require.NoError(k, err)
			var got []string
			for _, c := range answer.Containers {
				got = append(got, names[c.Id])
			}
			assert.ElementsMatch(k, tc.want, got, "containers of %v", tc.filter)
		}
		ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
		for _, tc := range []struct {
			filter *runtimeapi.PodSandboxFilter
			want   []string
		}{
			{nil, []string{"a", "b"}},
			{&runtimeapi.PodSandboxFilter{Id: b}, []string{"b"}},
			{&runtimeapi.PodSandboxFilter{State: ready}, []string{"a"}},
			{&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelUID: "uid-b"}}, []string{"b"}},
		} {
			answer, err := k.ListPodSandbox(k.Context(), &runtimeapi.ListPodSandboxRequest{Filter: tc.filter})
			require.NoError(k, err)
			var got []string
			for _, s := range answer.Items {
				got = append(got, names[s.Id])
			}
			assert.ElementsMatch(k, tc.want, got, "sandboxes of %v", tc.filter)
		}
		stats, err := k.ListContainerStats(k.Context(), &runtimeapi.ListContainerStatsRequest{})
		require.NoError(k, err)
		assert.Len(k, stats.Stats, 1, "what runs")
		pods, err := k.ListPodSandboxStats(k.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{Id: a}})
		require.NoError(k, err)
		assert.Len(k, pods.Stats, 1)
	})
}

// The status has the labels and annotations that the kubelet created, such as its
// back-off.
func TestStatusHasWhatWasCreated(t *testing.T) {
	onRuntime(t, Options{}, func(k kubelet) {
		sandbox, config := k.sandbox("pod")
		created, err := k.CreateContainer(k.Context(), &runtimeapi.CreateContainerRequest{
			PodSandboxId: sandbox, SandboxConfig: config,
			Config: &runtimeapi.ContainerConfig{
				Metadata:    &runtimeapi.ContainerMetadata{Name: "main", Attempt: 3},
				Image:       &runtimeapi.ImageSpec{Image: imageID("image"), UserSpecifiedImage: "image"},
				Labels:      map[string]string{labelContainer: "main"},
				Annotations: map[string]string{"io.kubernetes.container.restartCount": "3"},
				Mounts:      []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: "/x"}},
			},
		})
		require.NoError(k, err)
		s := k.status(created.ContainerId)
		assert.Equal(k, "3", s.Annotations["io.kubernetes.container.restartCount"])
		assert.Equal(k, "/x", s.Mounts[0].HostPath)
		assert.EqualValues(k, 3, s.Metadata.Attempt)
		assert.Equal(k, "image", s.Image.Image)
		assert.Equal(k, imageID("image"), s.ImageId)
		assert.Zero(k, s.StartedAt)
		image, err := k.ImageStatus(k.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "image"}})
		require.NoError(k, err)
		assert.Equal(k, s.ImageId, image.Image.Id)
	})
}

// The runtime works over real sockets, as a kubelet and a harness use it.
func TestSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "memcri")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	r := New(Options{Dir: dir})
	cri, err := net.Listen("unix", filepath.Join(dir, "cri"))
	require.NoError(t, err)
	server := r.Register()
	go func() { _ = server.Serve(cri) }()
	defer server.Stop()
	own, err := net.Listen("unix", filepath.Join(dir, "control"))
	require.NoError(t, err)
	web := &http.Server{Handler: r.handler()}
	go func() { _ = web.Serve(own) }()
	defer web.Close()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "cri"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client, images := runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	control := NewControl(filepath.Join(dir, "control"))
	defer control.client.CloseIdleConnections()

	version, err := client.Version(t.Context(), &runtimeapi.VersionRequest{})
	require.NoError(t, err)
	assert.Equal(t, "v1", version.RuntimeApiVersion)
	ready, err := client.Status(t.Context(), &runtimeapi.StatusRequest{})
	require.NoError(t, err)
	for _, c := range ready.Status.Conditions {
		assert.True(t, c.Status, c.Type)
	}
	fs, err := images.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, dir, fs.ImageFilesystems[0].FsId.Mountpoint)

	stream, err := client.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.subscribers) == 1
	}, 10*time.Second, time.Millisecond)
	k := kubelet{t, r}
	sandbox, config := k.sandbox("pod")
	id := k.run(sandbox, config, "main", 0, "needs=db exit=1")
	require.NoError(t, control.SetDependency(t.Context(), "db", false))
	for _, want := range []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
	} {
		e, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, want, e.ContainerEventType)
		assert.Equal(t, id, e.ContainerId)
		assert.Len(t, e.ContainersStatuses, 1)
	}
	journal, err := control.Journal(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, journal, 1)
	assert.Equal(t, Exited, journal[0].What)
	calls, err := control.Calls(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, calls["Version"].Count)
	assert.Equal(t, 1, calls["ImageFsInfo"].Count)
}
