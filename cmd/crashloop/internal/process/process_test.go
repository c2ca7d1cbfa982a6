// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/cmd/crashloop/internal/agent"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
)

func TestMain(m *testing.M) {
	Shim()
	if dir := os.Getenv(agentDir); dir != "" {
		runAgent(dir)
	}
	os.Exit(m.Run())
}

// pod is one of which a Runtime is under test.
type pod struct {
	*Runtime
	t   *testing.T
	dir string

	mu       sync.Mutex
	lines    map[string][]string
	warnings []string
	// block is waited for with each line.
	block chan struct{}
}

func newPod(t *testing.T, volumes ...string) *pod {
	return newPodIn(t, t.TempDir(), volumes...)
}

func newPodIn(t *testing.T, dir string, volumes ...string) *pod {
	t.Helper()
	spec := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	for _, name := range volumes {
		spec.Spec.Volumes = append(spec.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	}
	p := &pod{t: t, dir: dir, lines: map[string][]string{}}
	r, err := New(spec, dir, func(container string, line []byte) {
		if p.block != nil {
			<-p.block
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lines[container] = append(p.lines[container], string(line))
	}, func(container, message string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.warnings = append(p.warnings, container+": "+message)
	})
	require.NoError(t, err)
	p.Runtime = r
	require.NoError(t, r.CreateSandbox(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.Remove(context.Background())) })
	return p
}

func sh(name, script string) *v1.Container {
	script = strings.ReplaceAll(script, "$", "$$") // $$ is $ in a manifest.
	return &v1.Container{Name: name, Command: []string{"/bin/sh", "-c", script}}
}

func (p *pod) start(c *v1.Container, restarts int) string {
	p.t.Helper()
	id, err := p.Start(p.t.Context(), c, restarts)
	require.NoError(p.t, err)
	return id
}

// run starts a container and returns how it ended.
func (p *pod) run(c *v1.Container) agent.Instance {
	p.t.Helper()
	p.start(c, 0)
	return p.exited(c.Name)
}

func (p *pod) instance(name string) agent.Instance {
	p.t.Helper()
	s, err := p.State(p.t.Context())
	require.NoError(p.t, err)
	assert.True(p.t, s.SandboxReady)
	assert.Equal(p.t, "127.0.0.1", s.IP)
	require.Contains(p.t, s.Instances, name)
	return s.Instances[name]
}

// exited waits for the end of a container.
func (p *pod) exited(name string) agent.Instance {
	p.t.Helper()
	var i agent.Instance
	require.Eventually(p.t, func() bool {
		i = p.instance(name)
		return i.State == kuberuntime.ContainerStateExited
	}, time.Minute, time.Millisecond)
	return i
}

func (p *pod) output(name string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.lines[name]...)
}

// lineOf waits for the first line of a container.
func (p *pod) lineOf(name string) string {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return len(p.output(name)) > 0 }, time.Minute, time.Millisecond)
	return p.output(name)[0]
}

func TestExitCodes(t *testing.T) {
	p := newPod(t)
	for script, code := range map[string]int32{
		"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -KILL $$": 137, "kill -SEGV $$": 139, "kill -TERM $$": 143,
	} {
		before := time.Now()
		i := p.run(sh("c", script))
		assert.Equal(t, code, i.ExitCode, script)
		assert.Empty(t, i.Reason, script)
		assert.Empty(t, i.Message, script)
		assert.WithinRange(t, i.StartedAt, before.Round(0), i.FinishedAt)
		assert.WithinRange(t, i.FinishedAt, i.StartedAt, time.Now())
	}
}

func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !strings.HasPrefix(string(rest), "Z")
}
