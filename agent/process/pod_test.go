// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(agentDir); dir != "" {
		runAgent(dir)
	}
	if attack := attacks[os.Getenv(attackVariable)]; attack != nil {
		attack()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pod is a pod with the Runtime under test.
type pod struct {
	*Runtime
	t   *testing.T
	dir string
	// outside is a directory of the machine that the containers see.
	outside string

	mu       sync.Mutex
	lines    map[string][]string
	warnings []string
	// output receives from block before each line, if it is not nil.
	block chan struct{}
}

// newPod returns a pod without confinement.
func newPod(t *testing.T) *pod { return newPodOf(t, newSpec(), t.TempDir(), Options{Unconfined: true}) }

// sandboxHere returns an error if bubblewrap is not installed, or can make no sandbox, as in
// most containers. It does not use the code of this package, whose errors are failures.
var sandboxHere = sync.OnceValue(func() error {
	out, err := exec.Command("bwrap", "--bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-net", "--proc", "/proc", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("bubblewrap makes no sandbox here: %w %s", err, out)
	}
	return nil
})

// newConfined returns a pod with confinement. It skips the test where there is none.
func newConfined(t *testing.T, spec *v1.Pod, options ...Options) *pod {
	t.Helper()
	if err := sandboxHere(); err != nil {
		t.Skip(err)
	}
	return newPodOf(t, spec, t.TempDir(), append(options, Options{})[0])
}

// newSpec returns a pod with an emptyDir volume for each mount of a container.
func newSpec(containers ...*v1.Container) *v1.Pod {
	spec := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	names := map[string]bool{}
	for _, c := range containers {
		spec.Spec.Containers = append(spec.Spec.Containers, *c)
		for _, m := range c.VolumeMounts {
			if !names[m.Name] {
				spec.Spec.Volumes = append(spec.Spec.Volumes, v1.Volume{Name: m.Name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
			}
			names[m.Name] = true
		}
	}
	return spec
}

// both runs a test confined and unconfined.
func both(t *testing.T, test func(t *testing.T, p *pod)) {
	t.Run("confined", func(t *testing.T) {
		outside := outsideTmp(t)
		p := newConfined(t, newSpec(), Options{HostDirs: []string{outside}})
		p.outside = outside
		test(t, p)
	})
	t.Run("unconfined", func(t *testing.T) {
		p := newPod(t)
		p.outside = outsideTmp(t)
		test(t, p)
	})
}

func newPodOf(t *testing.T, spec *v1.Pod, dir string, o Options) *pod {
	t.Helper()
	p := newUnmade(t, spec, dir, o)
	require.NoError(t, p.CreateSandbox(t.Context()))
	return p
}

// newUnmade returns a pod without a sandbox.
func newUnmade(t *testing.T, spec *v1.Pod, dir string, o Options) *pod {
	t.Helper()
	p := &pod{t: t, dir: dir, lines: map[string][]string{}}
	r, err := New(spec, dir, o, func(container string, line []byte) {
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
		return i.State == restart.ContainerStateExited
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
