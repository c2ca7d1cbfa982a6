// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// runEvent is a line of the output of crashloop run -o json.
type runEvent struct {
	Container, Type, Reason, Message string
	ExitCode, RestartCount           *int
}

// crashloopPod is a pod of crashloop run. Its dir keeps the journal after the pod is
// removed.
type crashloopPod struct {
	*pod
	wanted         v1.PodSpec
	root, manifest string
	// volume is the host's side of the pod's folder /pod.
	volume string
	// former is the UID of the previous manifest.
	former types.UID
	agent  *exec.Cmd
	// output is the file with the output of the current agent.
	output string
	agents int
}

// crashloopConfig gives the curve 0, 1, 1 … s.
const crashloopConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
featureGates: {` + harness.GateRestartPod + `: true}
`

// newCrashloopPod returns a pod with the name of the test, without an agent. The pod
// ends with the scenario.
func (e *e2e) newCrashloopPod(t *testing.T, spec v1.PodSpec) *crashloopPod {
	p := &crashloopPod{pod: e.newPod(t), root: e.Path("crashloop-pods")}
	p.manifest = filepath.Join(p.dir, "pod.json")
	p.write(spec)
	require.NoError(t, os.WriteFile(p.config(), []byte(crashloopConfig), 0o644))
	t.Cleanup(func() {
		if p.agent != nil {
			p.kill()
		}
		if t.Failed() {
			p.dump()
			text, err := os.ReadFile(p.output)
			t.Logf("%s: %v\n%s", p.output, err, text)
		}
	})
	return p
}

func (p *crashloopPod) config() string { return filepath.Join(p.dir, "kubelet.yaml") }

// write writes the pod's manifest.
func (p *crashloopPod) write(spec v1.PodSpec) {
	spec.Volumes = nil
	for _, name := range []string{"pod", "data"} {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	}
	// These fields are only useful with an API server.
	spec.NodeName, spec.Tolerations = "", nil
	p.wanted, p.former = spec, p.uid
	text, err := json.Marshal(&v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: spec,
	})
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(p.manifest, text, 0o644))
}

// start starts an agent. It returns when a container of the pod has started and has
// written to the journal.
func (p *crashloopPod) start() {
	p.t.Helper()
	saved := filepath.Join(filepath.Dir(filepath.Dir(p.volume)), "status.json")
	before, _ := os.Stat(saved)
	p.agents++
	p.output = filepath.Join(p.Spec.Logs, fmt.Sprintf("crashloop-%s-%d.json", p.name, p.agents))
	stdout, err := os.Create(p.output)
	require.NoError(p.t, err)
	defer stdout.Close()
	stderr, err := os.Create(p.output + ".err")
	require.NoError(p.t, err)
	defer stderr.Close()
	p.agent = exec.Command(*crashloopFlag, "run", "--runtime-endpoint=unix://"+p.RuntimeSocket(), "--root-dir="+filepath.Dir(p.root),
		"--config="+p.config(), "-o", "json", p.manifest)
	p.agent.Stdout, p.agent.Stderr = stdout, stderr
	require.NoError(p.t, p.agent.Start())
	require.NoError(p.t, harness.Await(p.ctx, "the pod's journal", patience, func(context.Context) error {
		prefix := filepath.Join(p.root, "default_"+p.name+"_")
		dirs, err := filepath.Glob(prefix + "*/" + filepath.Join("volumes", "pod"))
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			p.uid = types.UID(strings.TrimPrefix(filepath.Dir(filepath.Dir(dir)), prefix))
			if p.uid == p.former {
				continue
			}
			p.volume = dir
			now, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(dir)), "status.json"))
			// The file system may give a new file the number of the old one.
			if err != nil || os.SameFile(before, now) && now.ModTime().Equal(before.ModTime()) {
				continue
			}
			// A hard link keeps the journal after the pod is removed.
			if err := os.Link(filepath.Join(dir, "journal"), filepath.Join(p.dir, "journal")); err == nil || errors.Is(err, os.ErrExist) {
				return nil
			}
		}
		text, _ := os.ReadFile(p.output + ".err")
		return fmt.Errorf("no container has written to the journal; crashloop: %s", text)
	}))
}

// signal creates the file that a step wait=NAME waits for.
func (p *crashloopPod) signal(name string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.volume, name), nil, 0o644))
}

// kill ends the agent as a crash would.
func (p *crashloopPod) kill() {
	_ = p.agent.Process.Kill()
	_ = p.agent.Wait()
	p.agent = nil
}

// interrupt ends the agent as Ctrl-C does.
func (p *crashloopPod) interrupt() {
	p.t.Helper()
	require.NoError(p.t, p.agent.Process.Signal(syscall.SIGINT))
	p.ends(130)
}

// ends waits for the end of the agent, and checks its exit status and that no container
// is left.
func (p *crashloopPod) ends(status int) {
	p.t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.agent.Process.Kill() })
	defer timer.Stop()
	err := p.agent.Wait()
	got := p.agent.ProcessState.ExitCode()
	p.agent = nil
	assert.Equal(p.t, status, got, "exit status: %v", err)
	assert.Empty(p.t, p.containers(), "containers and sandboxes that are left")
	assert.NoDirExists(p.t, filepath.Dir(p.volume), "volumes")
	log, err := filepath.Glob(filepath.Join(p.root, "default_"+p.name+"_*", "logs", "*", "0.log"))
	assert.NoError(p.t, err)
	assert.NotEmpty(p.t, log, "logs")
}

// told waits for an event of the current agent.
func (p *crashloopPod) told(what string, match func(runEvent) bool) runEvent {
	p.t.Helper()
	return p.tellings(what, 1, match)
}

// started waits until the current agent has reported the given number of starts of a
// container. The container runs before the report, and the next agent undoes the start
// if the agent is killed in between.
func (p *crashloopPod) started(name string, times int) {
	p.t.Helper()
	p.tellings("the start of "+name, times, func(e runEvent) bool { return e.Container == name && e.Reason == "Started" })
}

// tellings waits for the given number of matching events, and returns the last one.
func (p *crashloopPod) tellings(what string, times int, match func(runEvent) bool) (last runEvent) {
	p.t.Helper()
	require.NoError(p.t, harness.Await(p.ctx, what, patience, func(context.Context) error {
		text, err := os.ReadFile(p.output)
		if err != nil {
			return err
		}
		n := 0
		for line := range bytes.Lines(text) {
			var e runEvent
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("%s: %w: %q", p.output, err, line)
			}
			if match(e) {
				last = e
				if n++; n == times {
					return nil
				}
			}
		}
		return fmt.Errorf("crashloop has reported it %d times, not %d", n, times)
	}))
	return last
}

// containers returns the IDs of the containers and sandboxes of all pods with the name
// of this one.
func (p *crashloopPod) containers() []string {
	p.t.Helper()
	const label = "io.kubernetes.pod.name"
	list, err := p.runtime().ListContainers(p.ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{label: p.name}},
	})
	require.NoError(p.t, err)
	ids := p.sandboxesWith(label, p.name)
	for _, c := range list.Containers {
		ids = append(ids, c.Id)
	}
	return ids
}

// running returns the ID of the running instance of each container of the pod.
func (p *crashloopPod) running() map[string]string {
	p.t.Helper()
	list, err := p.runtime().ListContainers(p.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(p.uid)},
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	require.NoError(p.t, err)
	found := map[string]string{}
	for _, c := range list.Containers {
		found[c.Metadata.Name] = c.Id
	}
	return found
}
