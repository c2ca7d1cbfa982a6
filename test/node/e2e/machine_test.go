// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// machineConfig lets pods swap, and limits the memory that they use before the kernel throttles them (memory.high).
const machineConfig = `memorySwap: {swapBehavior: LimitedSwap}
memoryThrottlingFactor: 0.9
featureGates: {MemoryQoS: true}
`

// tieredReservation makes the kubelet protect what a container requests (memory.low in a Burstable pod). Before v1.36 it always
// does (memory.min).
const tieredReservation = `memoryReservationPolicy: TieredReservation
`

// oomExit is the exit code of a container that the kernel killed.
const oomExit = 137

// machineScenarios need a machine with cgroup v2 and swap, on which the kubelet makes a
// cgroup for each pod.
var machineScenarios = []scenario{
	// With memory.oom.group the kernel kills every process of the container, although only
	// one of them takes the memory.
	{"OOMKill", func(t *testing.T, e *e2e) {
		p := e.create(t, alwaysSpec(nil, limited(container("main", "eat", "eat", "")), container("other", "")))
		p.event("main", 3, "start")
		after := p.runsAgain("main", 2)
		p.assertOOMKilled(after, "main", 2)
		assert.Equal(t, "1\n", p.cgroup(after, "main")["memory.oom.group"], "memory.oom.group")
		p.assertDelays("main", curveDelays(2)...)
		p.assertWaited("main", 2, curve(1))
		time.Sleep(4 * time.Second)
		p.assertStarts(map[string]int{"main": 3, "other": 1})
		p.assertOver()
		p.alwaysRunning()
	}},
	{"OOMKillTriggers", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec([]v1.Container{sidecar("sidecar1", "")},
			ruled(limited(container("main", "wait=go eat", "")), v1.ContainerRestartRuleAction(*actionFlag), v1.ContainerRestartRuleOnExitCodesOpIn, oomExit),
			container("other", "")))
		before := p.running()
		p.signal("go")
		after := p.restarted(restart{before: before, cause: "main", code: oomExit})
		p.assertOOMKilled(after, "main", 1)
		time.Sleep(4 * time.Second)
		p.assertStarts(map[string]int{"sidecar1": 2, "main": 2, "other": 2})
	}},

	// The key of the back-off includes the resources.
	{"ResizedInBackOff", func(t *testing.T, e *e2e) {
		e.requireResize(t)
		p := e.create(t, alwaysSpec(nil, limited(container("main", "exit=1")), container("other", "")))
		p.event("main", 3, "exit:1")
		before := p.latest("the back-off", func(now *v1.Pod) error {
			if s := statusOf(now, "main"); s.State.Waiting == nil || s.RestartCount != 2 {
				return fmt.Errorf("main: %+v", s)
			}
			return nil
		})
		p.resize(before, "main", "300m")
		p.starting("main", 6)
		// The restart that waited is the first one under the new key.
		p.assertDelays("main", append(curveDelays(2), curveDelays(3)...)...)
		p.assertStarts(map[string]int{"other": 1})
		p.alwaysRunning()
	}},
	// A healthy container that is restarted for a resize has not crashed. Every second resize goes back
	// to a known key.
	{"ResizedWithRestart", func(t *testing.T, e *e2e) {
		e.requireResize(t)
		main := limited(container("main", ""))
		main.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
		p := e.create(t, alwaysSpec(nil, main, container("other", "")))
		before := p.running()
		for i, cpu := range []string{"300m", "200m", "300m", "200m", "300m"} {
			p.resize(before, "main", cpu)
			p.event("main", i+2, "start")
		}
		assert.Empty(t, p.backOffEvents("main"))
		p.assertStarts(map[string]int{"main": 6, "other": 1})
		p.alwaysRunning()
	}},
	{"ResizedInRestart", func(t *testing.T, e *e2e) {
		e.requireResize(t)
		p := e.create(t, podSpec(nil, limited(triggering(container("main", "wait=go exit=42", "wait=go exit=42", ""))), limited(container("other", "hold=release", ""))))
		before := p.running()
		assert.Equal(t, "20000 100000\n", p.cgroup(before, "main")["cpu.max"], "cpu.max of main before the resize")
		p.signal("go")
		p.event("other", 1, "term")
		p.resize(before, "main", "300m")
		p.resize(before, "other", "400m")
		p.put("release")
		after := p.restarted(restart{before: before, cause: "main"})
		for name, max := range map[string]string{"main": "30000 100000\n", "other": "40000 100000\n"} {
			assert.NoError(t, harness.Await(e.ctx, "the resize of "+name, patience, func(context.Context) error {
				if got := p.cgroup(after, name)["cpu.max"]; got != max {
					return fmt.Errorf("cpu.max is %q, want %q", got, max)
				}
				return nil
			}))
		}
		p.assertStarts(map[string]int{"main": 2, "other": 2})
		// The pod's back-off has its own key.
		p.assertAnnotated("main", podAnnotation, "pod/"+string(p.uid), 1)
		p.signal("go")
		p.event("main", 3, "start")
		p.assertPodCurve("main", 2, usual)
		p.assertAnnotated("main", podAnnotation, "pod/"+string(p.uid), 2)
	}},

	{"CgroupsAndDevicesAreKept", func(t *testing.T, e *e2e) {
		if *pluginFlag == "" {
			skip(t, "this needs upstream's sample device plugin: make node-vm")
		}
		plugin, err := e.Start("device-plugin", *pluginFlag)
		require.NoError(t, err)
		t.Cleanup(plugin.Kill)
		const device = "example.com/resource"
		require.NoError(t, harness.Await(e.ctx, "the devices", patience, func(ctx context.Context) error {
			node, err := e.kube.CoreV1().Nodes().Get(ctx, harness.Name, metav1.GetOptions{})
			if err == nil && node.Status.Allocatable.Name(device, resource.DecimalSI).Value() != 2 {
				err = fmt.Errorf("allocatable: %v", node.Status.Allocatable)
			}
			return err
		}))
		one := func(c v1.Container) v1.Container {
			c = limited(c)
			c.Resources.Limits[device] = resource.MustParse("1")
			return c
		}
		main := one(container("main", "wait=crash exit=1", "wait=go exit=42", ""))
		main.RestartPolicy = ptr.To(v1.ContainerRestartPolicyOnFailure)
		p := e.create(t, podSpec(nil, triggering(main), one(container("other", "hold=release", ""))))
		now := p.running()
		type state struct {
			pod, main, other map[string]string
			devices          [2]string
		}
		look := func(now *v1.Pod) (s state) {
			s.main, s.other = p.cgroup(now, "main"), p.cgroup(now, "other")
			s.pod = cgroup(t, filepath.Dir(p.cgroupPath(now, "main")))
			s.devices = [2]string{p.device(now, "main"), p.device(now, "other")}
			return s
		}
		first := look(now)
		assert.NotEqual(t, first.devices[0], first.devices[1], "the devices of both containers")
		for _, file := range []string{"memory.high", "memory.swap.max"} {
			assert.NotContains(t, []string{"", "0\n", "max\n"}, first.main[file], file+" of main")
		}
		reserved := "memory.low"
		if e.before(t, 36) {
			reserved = "memory.min"
		}
		assert.Equal(t, fmt.Sprintln(48<<20), first.main[reserved], reserved+" of main")
		same := func(now state) {
			t.Helper()
			assert.Equal(t, first.pod, now.pod, "the pod's cgroup")
			assert.Equal(t, first.devices, now.devices, "the devices of main and other")
			for _, c := range [][2]map[string]string{{first.main, now.main}, {first.other, now.other}} {
				// Each instance has a cgroup of its own.
				delete(c[0], "path")
				delete(c[0], "inode")
				delete(c[1], "path")
				delete(c[1], "inode")
				assert.Equal(t, c[0], c[1], "the cgroup of a container")
			}
		}
		p.put("crash")
		p.event("main", 2, "start")
		now = p.runsAgain("main", 1)
		same(look(now))
		p.signal("go")
		p.event("other", 1, "term")
		// A pod that asks for a device meanwhile does not get one.
		thief := e.create(t, podSpec(nil, one(container("main", ""))), "thief")
		rejected := thief.latest("the rejection", func(now *v1.Pod) error {
			if now.Status.Phase != v1.PodFailed {
				return fmt.Errorf("the phase is %s", now.Status.Phase)
			}
			return nil
		})
		assert.Equal(t, "UnexpectedAdmissionError", rejected.Status.Reason, "%s", rejected.Status.Message)
		p.put("release")
		same(look(p.restarted(restart{before: now, cause: "main"})))
	}},

	// The instance that was created last according to the clock is not the newest one.
	{"ClockIsSetBack", func(t *testing.T, e *e2e) {
		p := e.create(t, alwaysSpec(nil, container("main", "wait=go exit=1", "exit=1", "exit=1", "exit=1", "")))
		p.running()
		ahead(t, func() {
			p.signal("go")
			p.event("main", 2, "exit:1")
		})
		p.runsAgain("main", 4)
		p.assertDelays("main", curveDelays(4)...)
		time.Sleep(4 * time.Second)
		p.assertStarts(map[string]int{"main": 5})
		p.alwaysRunning()
	}},
	{"ClockIsSetBackAfterRestart", func(t *testing.T, e *e2e) {
		spec := podSpec([]v1.Container{sidecar("sidecar1", "")}, triggering(container("main", "wait=go exit=42", "wait=go exit=42", "")), container("other", ""))
		p := e.create(t, spec)
		before := p.running()
		ahead(t, func() {
			p.signal("go")
			before = p.restarted(restart{before: before, cause: "main"})
		})
		p.signal("go")
		p.restarted(restart{before: before, cause: "main"})
		time.Sleep(4 * time.Second)
		p.assertStarts(map[string]int{"sidecar1": 3, "main": 3, "other": 3})
	}},

	{"UserNamespace", func(t *testing.T, e *e2e) {
		if e.before(t, 33) {
			skip(t, "user namespaces are on by default from v1.33 on")
		}
		spec := podSpec([]v1.Container{sidecar("sidecar1", "")}, triggering(container("main", "wait=go exit=42", "")), container("other", ""))
		spec.HostUsers, spec.RuntimeClassName = ptr.To(false), e.crunClass(t)
		p := e.create(t, spec)
		users := func(now *v1.Pod, name string) string {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%s/uid_map", p.process(now, name)))
			require.NoError(t, err)
			return strings.Join(strings.Fields(string(text)), " ")
		}
		before := p.running()
		first := users(before, "main")
		assert.Regexp(t, `^0 [1-9]\d+ 65536$`, first, "the users of main")
		p.signal("go")
		after := p.restarted(restart{before: before, cause: "main"})
		for _, name := range []string{"sidecar1", "main", "other"} {
			assert.Equal(t, first, users(after, name), "the users of %s after the restart", name)
		}
	}},
}

// crunClass returns the name of the RuntimeClass of crun.
func (e *e2e) crunClass(t *testing.T) *string {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "crun"}, Handler: "crun"}
	if _, err := e.kube.NodeV1().RuntimeClasses().Create(e.ctx, class, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	return &class.Name
}

// ahead runs f while the machine's clock is an hour ahead.
func ahead(t *testing.T, f func()) {
	stepClock(t, time.Hour)
	defer stepClock(t, -time.Hour)
	f()
}

// stepClock steps the machine's clock.
func stepClock(t *testing.T, by time.Duration) {
	tv := syscall.NsecToTimeval(time.Now().Add(by).UnixNano())
	require.NoError(t, syscall.Settimeofday(&tv))
}

// limited gives a container requests and limits, such that it may swap.
func limited(c v1.Container) v1.Container {
	c.Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("48Mi")},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("200m"), v1.ResourceMemory: resource.MustParse("96Mi")},
	}
	return c
}

// assertOOMKilled asserts that the last state of a container is that of its n-th instance, and
// that the kernel killed this for its memory. The kubelet learns the cause only from the runtime.
func (p *pod) assertOOMKilled(now *v1.Pod, name string, n int) {
	p.t.Helper()
	// The cgroup of the pod counts the processes that were killed in all of its containers.
	events, err := os.ReadFile(filepath.Join(filepath.Dir(p.cgroupPath(now, name)), "memory.events"))
	require.NoError(p.t, err)
	_, kills, _ := strings.Cut(string(events), "\noom_kill ")
	kills, _, _ = strings.Cut(kills, "\n")
	count, err := strconv.Atoi(kills)
	require.NoError(p.t, err, "memory.events: %s", events)
	assert.GreaterOrEqual(p.t, count, n, "memory.events: %s", events)
	last := statusOf(now, name).LastTerminationState.Terminated
	if !assert.NotNil(p.t, last, "last state of %s", name) {
		return
	}
	i := p.instance(name, n, true)
	assert.Equal(p.t, i.id, runtimeID(last.ContainerID), "container ID in the last state of %s", name)
	assert.EqualValues(p.t, oomExit, last.ExitCode, "exit code of %s", name)
	want := []string{"OOMKilled"}
	if p.crio() || i.late {
		want = append(want, "Error")
	} else if !i.outOfMemory {
		harness.Progress("containerd did not log that %s of pod %s was killed for its memory", name, p.name)
		want = []string{"Error"}
	}
	assert.Contains(p.t, want, last.Reason, "reason of %s", name)
}

// requireResize skips the scenario before v1.33, in which resizing is off.
func (e *e2e) requireResize(t *testing.T) {
	if e.before(t, 33) {
		skip(t, "pods can be resized from v1.33 on")
	}
}

// resize changes the limit of the CPU of a container.
func (p *pod) resize(now *v1.Pod, name, cpu string) {
	p.t.Helper()
	patch := fmt.Sprintf(`{"spec": {"containers": [{"name": %q, "resources": {"limits": {"cpu": %q}}}]}}`, name, cpu)
	_, err := p.kube.CoreV1().Pods(now.Namespace).Patch(p.ctx, now.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize")
	require.NoError(p.t, err)
}

// cgroupPath returns the cgroup of the running instance of a container.
func (p *pod) cgroupPath(now *v1.Pod, name string) string {
	p.t.Helper()
	id := runtimeID(statusOf(now, name).ContainerID)
	var found []string
	// A pod of the class Guaranteed is one level higher.
	for _, class := range []string{"*", "*/*"} {
		paths, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/kubepods.slice", class, "*-"+id+".scope"))
		require.NoError(p.t, err)
		found = append(found, paths...)
	}
	require.Len(p.t, found, 1, "cgroups of %s", name)
	return found[0]
}

// cgroup returns the settings of the cgroup of a container.
func (p *pod) cgroup(now *v1.Pod, name string) map[string]string {
	p.t.Helper()
	return cgroup(p.t, p.cgroupPath(now, name))
}

// cgroup returns the settings of a cgroup, with its path and inode.
func cgroup(t *testing.T, path string) map[string]string {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	all := map[string]string{"path": path, "inode": fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino)}
	for _, file := range []string{"cpu.max", "cpu.weight", "memory.high", "memory.low", "memory.max", "memory.min", "memory.oom.group", "memory.swap.max", "pids.max"} {
		text, err := os.ReadFile(filepath.Join(path, file))
		require.NoError(t, err)
		all[file] = string(text)
	}
	// crun makes a cgroup within the one that systemd makes, and sets there what systemd does not know.
	if text, err := os.ReadFile(filepath.Join(path, "container", "memory.oom.group")); err == nil {
		all["memory.oom.group"] = string(text)
	}
	return all
}

// process returns the ID of the process of a container.
func (p *pod) process(now *v1.Pod, name string) string {
	p.t.Helper()
	var all []byte
	// crun makes a cgroup within the one that systemd makes.
	for _, file := range []string{"cgroup.procs", "container/cgroup.procs"} {
		text, err := os.ReadFile(filepath.Join(p.cgroupPath(now, name), file))
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(p.t, err)
		}
		all = append(all, text...)
	}
	first, _, found := strings.Cut(string(all), "\n")
	require.True(p.t, found, "%s has no process", name)
	return first
}

var deviceMount = regexp.MustCompile(`/tmp/Dev-\d`)

// device returns the device that the sample device plugin has put into a container.
func (p *pod) device(now *v1.Pod, name string) string {
	p.t.Helper()
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%s/mountinfo", p.process(now, name)))
	require.NoError(p.t, err)
	all := slices.Compact(deviceMount.FindAllString(string(mounts), -1))
	require.Len(p.t, all, 1, "devices of %s", name)
	return all[0]
}
