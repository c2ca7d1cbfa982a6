// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// aloneRestarts is the number of restarts of a pod without a kubelet. aloneDelay is the delay
// before a restart of a container that exits at once. With several such pods, the runtime is as
// busy as with a kubelet that has this maximum.
const (
	aloneRestarts = 10
	aloneDelay    = time.Second
)

// Alone has restarts by a client of the container runtime without a kubelet. The client
// always knows the next step, so no kubelet can be faster.
type Alone struct {
	Journal []harness.JournalEvent `json:"journal,omitempty"`
	// Starts has, for each restart, the time in seconds that the runtime took to
	// create and start the four containers, one after another.
	Starts []float64 `json:"starts,omitempty"`
	// Crashes has the start times of each pod with a container that exits at once, in
	// seconds of uptime.
	Crashes map[string][]float64 `json:"crashes,omitempty"`
}

// alonePod is a pod without a kubelet.
type alonePod struct {
	runtimeapi.RuntimeServiceClient
	sandbox       string
	sandboxConfig *runtimeapi.PodSandboxConfig
	spec          corev1.PodSpec
	gracefully    bool
	// ids has the ID of each container's newest instance.
	ids map[string]string
	// exits receives the containers that the runtime reports as exited. ended has those
	// that were read from it.
	exits chan string
	ended map[string]bool
}

// restartAlone restarts a pod like the scenario's without a kubelet. No kubelet may run,
// because it would remove the pod.
func (m *measurement) restartAlone() (*Alone, error) {
	m.say("restarting a pod without a kubelet")
	ctx, cancel := context.WithTimeout(m.Context(), time.Minute)
	defer cancel()
	pod := m.pods()[0]
	pod.Name = "alone"
	main := &pod.Spec.Containers[0]
	main.Args = main.Args[:1] // Each start can then be triggered, not only the first.
	dir := m.Path(journalsDir, pod.Name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	p, closeConn, err := m.runAlone(ctx, pod)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	alone := &Alone{}
	for n := range aloneRestarts + 1 {
		if n > 0 {
			if err := os.WriteFile(m.Path(journalsDir, pod.Name, triggerFile), nil, 0o644); err != nil {
				return nil, err
			}
			if err := p.stop(ctx); err != nil {
				return nil, err
			}
		}
		took, err := p.start(ctx, uint32(n), dir)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			alone.Starts = append(alone.Starts, took.Seconds())
		}
		if err := m.awaitStarts(pod, n+1); err != nil {
			return nil, err
		}
	}
	alone.Journal, err = m.journal(pod)
	return alone, err
}

// crashAlone restarts containers like the scenario's without a kubelet. No kubelet may run.
func (m *measurement) crashAlone() (*Alone, error) {
	m.say("restarting containers without a kubelet")
	ctx, cancel := context.WithTimeout(m.Context(), time.Minute)
	defer cancel()
	pods := m.pods()
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, pod := range pods {
		pod.Name = fmt.Sprintf("alone-%02d", i+1)
		pod.Spec.Containers[0].Args = []string{"/starts/" + pod.Name}
		wg.Go(func() {
			// The pods start at different times, as with a kubelet.
			time.Sleep(aloneDelay * time.Duration(i) / time.Duration(len(pods)))
			errs[i] = m.crash(ctx, pod)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all, err := m.starts()
	maps.DeleteFunc(all, func(name string, _ []float64) bool {
		return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Name == name })
	})
	return &Alone{Crashes: all}, err
}

// crash restarts the container of a pod each time the delay after its exit is over.
func (m *measurement) crash(ctx context.Context, pod *corev1.Pod) error {
	p, closeConn, err := m.runAlone(ctx, pod)
	if err != nil {
		return err
	}
	defer closeConn()
	for n := range aloneRestarts + 1 {
		if n > 0 {
			time.Sleep(aloneDelay)
		}
		if _, err := p.start(ctx, uint32(n), m.Path(startsDir)); err != nil {
			return err
		}
		if err := p.awaitEnd(pod.Spec.Containers[0].Name); err != nil {
			return err
		}
	}
	return nil
}

// runAlone creates the sandbox of a pod, whose containers the caller starts. The
// returned function closes the connection.
func (m *measurement) runAlone(ctx context.Context, pod *corev1.Pod) (p *alonePod, closeConn func(), err error) {
	conn, err := m.DialRuntime()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	p = &alonePod{
		RuntimeServiceClient: runtimeapi.NewRuntimeServiceClient(conn),
		spec:                 pod.Spec,
		gracefully:           m.scenario.Action == harness.ActionRestartPod,
		ids:                  map[string]string{},
		exits:                make(chan string, 10*aloneRestarts),
		ended:                map[string]bool{},
	}
	events, err := p.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return nil, nil, err
	}
	go p.read(events, pod.Name)
	return p, func() { conn.Close() }, p.runSandbox(ctx, pod.Name, m.Path("logs-"+pod.Name))
}

// runSandbox creates the sandbox, on the host's network as in the scenario.
func (p *alonePod) runSandbox(ctx context.Context, name, logs string) error {
	p.sandboxConfig = &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: corev1.NamespaceDefault, Uid: name},
		LogDirectory: logs,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
	sandbox, err := p.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandboxConfig})
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	p.sandbox = sandbox.PodSandboxId
	return nil
}

// start starts all containers in a kubelet's order: one after another, and those after
// the init container when it has exited. It returns the total time of the starts.
func (p *alonePod) start(ctx context.Context, attempt uint32, dir string) (took time.Duration, err error) {
	for _, c := range slices.Concat(p.spec.InitContainers, p.spec.Containers) {
		config := &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: attempt},
			Image:    &runtimeapi.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image},
			Args:     c.Args,
			Mounts:   []*runtimeapi.Mount{{HostPath: dir, ContainerPath: c.VolumeMounts[0].MountPath}},
			LogPath:  fmt.Sprintf("%s-%d.log", c.Name, attempt),
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: p.sandboxConfig.Linux.SecurityContext.NamespaceOptions,
			}},
		}
		for _, e := range c.Env {
			config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
		}
		began := time.Now()
		created, err := p.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.sandbox, Config: config, SandboxConfig: p.sandboxConfig})
		if err != nil {
			return 0, fmt.Errorf("container %s: %w", c.Name, err)
		}
		p.ids[c.Name] = created.ContainerId
		if _, err := p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
			return 0, fmt.Errorf("container %s: %w", c.Name, err)
		}
		took += time.Since(began)
		if c.RestartPolicy == nil && slices.ContainsFunc(p.spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name }) {
			if err := p.awaitEnd(c.Name); err != nil {
				return 0, err
			}
		}
	}
	return took, nil
}

// stop waits for the exit of the trigger, and stops the others: for RestartPod the
// sidecar after the regular containers, otherwise all at once and without a grace
// period.
func (p *alonePod) stop(ctx context.Context) error {
	if err := p.awaitEnd(trigger); err != nil {
		return err
	}
	request := func(name string) error {
		var grace int64
		if p.gracefully {
			grace = corev1.DefaultTerminationGracePeriodSeconds
		}
		_, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.ids[name], Timeout: grace})
		return err
	}
	others := []string{"other", "sidecar"}
	errs := make([]error, len(others))
	var wg sync.WaitGroup
	for i, name := range others {
		wg.Go(func() { errs[i] = request(name) })
		if p.gracefully {
			wg.Wait()
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// read sends the exits of the pod's containers to p.exits, until the event stream
// ends. It must not block, because containerd does nothing while an event waits for
// its reader.
func (p *alonePod) read(events runtimeapi.RuntimeService_GetContainerEventsClient, uid string) {
	defer close(p.exits)
	for {
		e, err := events.Recv()
		if err != nil {
			return
		}
		if e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && e.GetPodSandboxStatus().GetMetadata().GetUid() == uid {
			p.exits <- e.ContainerId
		}
	}
}

// awaitEnd waits until the runtime reports the exit of the container.
func (p *alonePod) awaitEnd(name string) error {
	for !p.ended[p.ids[name]] {
		id, ok := <-p.exits
		if !ok {
			return fmt.Errorf("the runtime's event stream ended before the exit of container %s", name)
		}
		p.ended[id] = true
	}
	return nil
}
