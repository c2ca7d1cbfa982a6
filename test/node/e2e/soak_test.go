// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// The flags of TestSoak, which hack/node-e2e.sh Soak sets.
var (
	soakFlag     = flag.Duration("soak", 0, "run TestSoak for this `time`")
	soakPodsFlag = flag.Int("soak-pods", 110, "the `number` of pods of TestSoak")
	soakSeedFlag = flag.Uint64("soak-seed", 0, "the `seed` of TestSoak's random numbers (default: a new one)")
)

// soakCurve has the delays 0, 1, 2, 4 … 60 s. In the virtual machine, TestMain replaces it.
var soakCurve = harness.Curve{Reduced: true, Maximum: time.Minute}

// collected is the time within which the kubelet forgets the back-offs of pods that are gone,
// with some reserve.
const collected = 15 * time.Minute

// soak is a run of TestSoak.
type soak struct {
	*e2e
	random *rand.Rand
	// dependents are the pods of which main fails when a dependency does.
	dependents []*pod
	// done counts the disruptions of each kind.
	done map[string]int
}

// TestSoak kills the parts of a full node again and again, while its pods crash. In the
// second half it does not kill the kubelet, which at the end must use no more than at the
// start, and every restart must be counted.
func TestSoak(t *testing.T) {
	if !*insideFlag || *soakFlag == 0 {
		t.Skip("this needs root and patched binaries: make node-soak")
	}
	ran.Add(1)
	seed := *soakSeedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	harness.Progress("the seed is %d", seed)
	// With cgroup v2, containerd has an inotify instance for each container and each sandbox.
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		require.NoError(t, harness.CheckInotify(4**soakPodsFlag+20), "a node with %d pods", *soakPodsFlag)
	}
	n, err := theNode()
	require.NoError(t, err)
	// The disk of the kubelet is so small that it can be filled.
	require.NoError(t, os.MkdirAll(n.Path("kubelet"), 0o755))
	require.NoError(t, syscall.Mount("tmpfs", n.Path("kubelet"), "tmpfs", 0, "size=256m"))
	s := &soak{e2e: startE2E(t), random: rand.New(rand.NewPCG(seed, 0)), done: map[string]int{}}
	t.Cleanup(func() { s.Kubelet.Kill() })
	s.pods.stop() // It would keep every version of every pod.
	if s.Spec.Machine {
		// By default, cAdvisor reads the files of each cgroup every 10 s. On an emulated machine with
		// 110 pods, that is two thirds of the kubelet's work, and statuses are minutes late.
		s.kubeletArgs = append(s.kubeletArgs, "--housekeeping-interval=1m")
		// For the limits of local storage, the kubelet asks the runtime for the statistics of all
		// containers every 10 s. No pod here has one.
		s.kubeletArgs = append(s.kubeletArgs, s.dropIn(t, "localStorageCapacityIsolation: false\n"))
	}
	s.crash(t, soakCurve, 0)
	// A first round, so that caches, connections and folders are there at the start.
	first := *soakPodsFlag
	if s.Spec.Machine {
		// On an emulated machine, 110 starts take long.
		first = min(first, 4*kinds)
	}
	s.deletePods(t, s.createPods(t, first, "first"))
	_, _, err = s.EndLeft()
	require.NoError(t, err)
	before := s.settled(t, "before")
	harness.Progress("before: %v", before)
	// Those of the first round are still to be collected.
	before.Keys = 0

	pods := s.createPods(t, *soakPodsFlag)
	for i, p := range pods {
		if s.kind(i) == dependent {
			s.dependents = append(s.dependents, p)
		}
	}
	const parts = 6
	began := time.Now()
	for part := range time.Duration(parts) {
		// An account may take longer than a part.
		for ends := false; !ends; ends = time.Since(began) >= (part+1)**soakFlag/parts {
			s.wait(t, time.Duration(5+s.random.IntN(25))*time.Second)
			s.disrupt(t, part < parts/2)
		}
		s.accountAll(t, pods)
	}
	for _, d := range s.disruptions(t, 0) {
		assert.Positive(t, s.done[d.what], "times that %s, which needs a longer run", d.what)
	}
	s.deletePods(t, pods)
	// The kubelet keeps statistics of each cgroup, which would count as its memory.
	harness.Progress("without pods: %v", s.inventory(t, "left"))
	cgroups, processes, err := s.EndLeft()
	require.NoError(t, err)
	harness.Progress("the runtime had left %d cgroups and %d processes", cgroups, processes)
	var after inventory
	err = harness.Await(s.ctx, "the state of the start", collected, func(context.Context) error {
		after = s.inventory(t, "after")
		return after.exceeds(before)
	})
	harness.Progress("after: %v", after)
	assert.NoError(t, err)
}

// wait waits, and fails when a program of the node has ended.
func (s *soak) wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-s.ctx.Done():
		require.NoError(t, context.Cause(s.ctx))
	case <-time.After(d):
	}
}

// createPods creates n pods, and waits until each has started.
func (s *soak) createPods(t *testing.T, n int, parts ...string) (pods []*pod) {
	var class *string
	limit := patience
	if s.Spec.Machine {
		// The kubelet starts all of them at the same time.
		limit *= 2
		if !s.crio() {
			// On an emulated machine, runc takes much of the time of a start.
			class = s.crunClass(t)
		}
	}
	for i := range n {
		spec := soakSpec(s.kind(i))
		spec.RuntimeClassName = class
		pods = append(pods, s.create(t, spec, append(parts, fmt.Sprint(i))...))
	}
	for _, p := range pods {
		p.startingWithin("main", 1, limit)
	}
	return pods
}

// lostExit is the exit code of a container whose exit the runtime has not seen.
const lostExit = 255

// kinds is the number of kinds of pods, and dependent the kind that fails with a dependency.
const (
	kinds     = 8
	dependent = 6
)

// steady are the containers that do not crash, in each kind of pods.
var steady = map[int][]string{4: {"sidecar"}, kinds - 1: {"main"}}

// kind returns the kind of pod i.
func (s *soak) kind(i int) int {
	if s.Spec.Machine {
		// If 90 containers crash every five minutes, a slow emulated machine has no time for anything else.
		if i%2 == 1 {
			return kinds - 1
		}
		i /= 2
	}
	return i % kinds
}

// soakSpec returns the spec of a kind of pods.
func soakSpec(kind int) v1.PodSpec {
	fails, succeeds := "sleep=2s exit=1", "sleep=3s exit=0"
	switch kind {
	case 0:
		// If the container runtime is killed when a container exits, the exit code is lost. If the kubelet is killed while it
		// starts main, main starts twice in a run of the pod: it must not wait for as many starts of the sidecar.
		restarts := func(c v1.Container, codes ...int32) v1.Container {
			return ruled(c, v1.ContainerRestartRuleAction(*actionFlag), v1.ContainerRestartRuleOnExitCodesOpIn, append(codes, lostExit)...)
		}
		return podSpec([]v1.Container{restarts(container("init", "exit=0")), sidecar("sidecar", "")}, restarts(container("main", "sleep=2s exit=42"), triggerExit))
	case 1:
		return alwaysSpec(nil, container("main", fails))
	case 2:
		return alwaysSpec(nil, container("main", succeeds))
	case 3:
		spec := podSpec(nil, container("main", fails))
		spec.RestartPolicy = v1.RestartPolicyOnFailure
		return spec
	case 4:
		return alwaysSpec([]v1.Container{sidecar("sidecar", "")}, container("main", fails))
	case 5:
		spec := alwaysSpec(nil, container("main", fails))
		for i := range 9 {
			spec.Containers = append(spec.Containers, container(fmt.Sprintf("main%d", i), fails))
		}
		return spec
	case dependent:
		return alwaysSpec(nil, container("main", "wait=outage exit=1"))
	default:
		return alwaysSpec(nil, container("main", ""))
	}
}

type disruption struct {
	what string
	do   func()
}

// kubeletKilled is the disruption after which no kubelet can be compared with the one at the start.
const kubeletKilled = "the kubelet is killed"

// disruptions are things that go wrong on nodes, each with its end.
func (s *soak) disruptions(t *testing.T, down time.Duration) []disruption {
	all := []disruption{
		{kubeletKilled, func() {
			s.crash(t, soakCurve, down)
		}},
		{"the container runtime is killed", func() {
			s.RuntimeProcess.Kill()
			s.wait(t, down)
			require.NoError(t, s.RunRuntime())
		}},
		{"the API server is killed", func() {
			s.api.Kill()
			s.wait(t, down)
			require.NoError(t, s.Serve(s.api))
		}},
		{"etcd is killed", func() {
			s.Etcd.Kill()
			s.wait(t, down)
			require.NoError(t, s.RunEtcd())
		}},
		{"the kubelet's disk is full", func() {
			fill := filepath.Join(s.Path("kubelet"), "fill")
			f, err := os.Create(fill)
			require.NoError(t, err)
			for written := 1; err == nil && written > 0; {
				written, err = f.Write(make([]byte, 1<<16))
			}
			defer os.Remove(fill)
			assert.ErrorIs(t, err, syscall.ENOSPC)
			require.NoError(t, f.Close())
			s.wait(t, down)
		}},
	}
	if len(s.dependents) > 0 {
		all = append(all, disruption{"a dependency of pods fails", func() {
			s.failDependency()
			s.wait(t, down)
		}})
	}
	// The clock is that of the whole machine.
	if s.Spec.Machine {
		all = append(all, disruption{"the clock steps", func() {
			step := time.Duration(s.random.IntN(7200)-3600) * time.Second
			stepClock(t, step)
			s.wait(t, down)
			stepClock(t, -step)
		}})
	}
	return all
}

// failDependency makes the containers that have the dependency fail. One that waits for its
// restart fails after it.
func (s *soak) failDependency() {
	for _, p := range s.dependents {
		p.put("outage")
	}
}

// disrupt does one of the things that have happened least, so that none is missed.
func (s *soak) disrupt(t *testing.T, kubelet bool) {
	down := time.Duration(s.random.IntN(10)) * time.Second
	all := slices.DeleteFunc(s.disruptions(t, down), func(d disruption) bool { return d.what == kubeletKilled && !kubelet })
	// MinFunc takes the first of several.
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	d := slices.MinFunc(all, func(a, b disruption) int { return s.done[a.what] - s.done[b.what] })
	s.done[d.what]++
	harness.Progress("%s for %v", d.what, down)
	d.do()
}

// accountAll makes the dependency fail, and waits until each container that is not steady has
// started once more, and until the API shows all restarts.
func (s *soak) accountAll(t *testing.T, pods []*pod) {
	t.Helper()
	next := make([]map[string]int, len(pods))
	for i, p := range pods {
		next[i] = map[string]int{}
		for _, c := range soakSpec(s.kind(i)).Containers {
			if !slices.Contains(steady[s.kind(i)], c.Name) {
				next[i][c.Name] = p.starts(c.Name) + 1
			}
		}
	}
	s.failDependency()
	restarts := 0
	for i, p := range pods {
		restarts += s.account(t, p, s.kind(i), next[i])
	}
	harness.Progress("%d restarts of %d pods are counted", restarts, len(pods))
}

// account waits until each container in next has had that many starts, and until the API shows
// each restart. It returns the number of restarts.
func (s *soak) account(t *testing.T, p *pod, kind int, next map[string]int) (restarts int) {
	for name, n := range next {
		p.startingWithin(name, n, soakCurve.Maximum+patience)
	}
	require.NoError(t, harness.Await(s.ctx, "the restart counts of pod "+p.name, soakCurve.Maximum+patience, func(context.Context) error {
		now, err := s.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(s.ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		// A pod that restarts is Pending until its init containers have ended, and on a slow machine runs too briefly to be seen.
		restarting := now.Status.Phase == v1.PodPending && conditionIn(now, p.condition()).Status == v1.ConditionTrue
		if now.UID != p.uid || now.Status.Phase != v1.PodRunning && !restarting {
			return fmt.Errorf("UID %s and phase %s, want %s and Running, or a restart of the pod", now.UID, now.Status.Phase, p.uid)
		}
		restarts = 0
		for _, c := range statuses(now) {
			// A kubelet that is killed in a start leaves an instance that counts and was
			// never started.
			created, shown, newest, err := p.created(c.Name)
			if err != nil {
				return err
			}
			// If the status is older than the newest instance, the count may be right by chance.
			if id := runtimeID(c.ContainerID); id != newest {
				return fmt.Errorf("container %s has ID %s, want %s", c.Name, id, newest)
			}
			if !slices.Contains(shown, int(c.RestartCount)) {
				return fmt.Errorf("container %s has restart count %d, want %v", c.Name, c.RestartCount, shown)
			}
			restarts += created - 1
		}
		return nil
	}))
	for _, name := range steady[kind] {
		assert.Equal(t, 1, p.starts(name), "starts of container %s of pod %s, which does not crash", name, p.name)
	}
	newest := map[string]int{}
	for _, e := range p.journal() {
		assert.GreaterOrEqual(t, e.Start, newest[e.Container], "container %s of pod %s: start %d noted %q after a later start", e.Container, p.name, e.Start, e.Event)
		newest[e.Container] = max(newest[e.Container], e.Start)
	}
	return restarts
}

// deletePods deletes pods, and waits until they are gone.
func (s *soak) deletePods(t *testing.T, pods []*pod) {
	for _, p := range pods {
		require.NoError(t, s.kube.CoreV1().Pods(metav1.NamespaceDefault).Delete(s.ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))}))
	}
	require.NoError(t, harness.Await(s.ctx, "the end of the pods", 2*patience, func(context.Context) error {
		all, err := s.kube.CoreV1().Pods(metav1.NamespaceDefault).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if containers, sandboxes := s.inRuntime(t); len(all.Items)+containers+sandboxes > 0 {
			return fmt.Errorf("there are still %d pods, %d containers and %d sandboxes", len(all.Items), containers, sandboxes)
		}
		return nil
	}))
}

// inRuntime returns the numbers of containers and sandboxes.
func (s *soak) inRuntime(t *testing.T) (containers, sandboxes int) {
	conn, err := s.DialRuntime()
	require.NoError(t, err)
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	c, err := client.ListContainers(s.ctx, &runtimeapi.ListContainersRequest{})
	require.NoError(t, err)
	b, err := client.ListPodSandbox(s.ctx, &runtimeapi.ListPodSandboxRequest{})
	require.NoError(t, err)
	return len(c.Containers), len(b.Items)
}

// inventory is what a kubelet and its pods use.
type inventory struct {
	// Heap is in bytes, after a garbage collection.
	Heap                                                float64
	Goroutines, OpenFiles, Keys, Files, Cgroups, Mounts int
}

// inventory also writes the kubelet's heap profile to the logs, so that two can be compared.
func (s *soak) inventory(t *testing.T, name string) (i inventory) {
	// This profile makes the kubelet collect garbage.
	heap, err := s.fromKubelet("debug/pprof/heap").Param("gc", "1").DoRaw(s.ctx)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.Spec.Logs, "heap-"+name+".pprof"), heap, 0o644))
	m := s.scrape(t)
	sum := func(name string) (sum float64) {
		require.Contains(t, m, name)
		for _, series := range m[name].GetMetric() {
			sum += series.GetGauge().GetValue()
		}
		return sum
	}
	i.Heap = sum("go_memstats_heap_alloc_bytes")
	i.Goroutines, i.OpenFiles, i.Keys = int(sum("go_goroutines")), int(sum("process_open_fds")), int(sum(metricKeys))
	count := func(dir string, counts func(path string, e fs.DirEntry) bool) (n int) {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && counts(path, entry) {
				n++
			}
			return err
		}))
		return n
	}
	// A kubelet that is killed while it writes a file leaves one that begins with a dot.
	i.Files = count(s.Path("kubelet"), func(_ string, e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), ".") }) +
		count(s.Path("pod-logs"), func(string, fs.DirEntry) bool { return true })
	i.Cgroups = count("/sys/fs/cgroup", func(_ string, e fs.DirEntry) bool { return e.IsDir() })
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	i.Mounts = strings.Count(string(mounts), "\n")
	return i
}

// settled returns the inventory when it has not fallen for a minute, or after ten: goroutines and connections of stopped pods end some
// time after them.
func (s *soak) settled(t *testing.T, name string) (least inventory) {
	least = s.inventory(t, name)
	fell := time.Now()
	for end := fell.Add(10 * time.Minute); time.Since(fell) < time.Minute && time.Now().Before(end); {
		s.wait(t, 20*time.Second)
		now := s.inventory(t, name)
		if now.Goroutines < least.Goroutines || now.OpenFiles < least.OpenFiles || now.Cgroups < least.Cgroups || now.Mounts < least.Mounts {
			least, fell = now, time.Now()
		}
	}
	return least
}

func (i inventory) String() string {
	return fmt.Sprintf("heap %.1f MB, %d goroutines, %d open files, %d back-off keys, %d files, %d cgroups, %d mounts",
		i.Heap/1e6, i.Goroutines, i.OpenFiles, i.Keys, i.Files, i.Cgroups, i.Mounts)
}

// exceeds returns an error if there is more than before. Heap, goroutines and open files
// vary with connections and caches.
func (i inventory) exceeds(before inventory) (err error) {
	for _, c := range []struct {
		what               string
		now, before, allow float64
	}{
		{"heap in MB", i.Heap / 1e6, before.Heap / 1e6, 10},
		{"goroutines", float64(i.Goroutines), float64(before.Goroutines), 30},
		{"open files", float64(i.OpenFiles), float64(before.OpenFiles), 15},
		{"back-off keys", float64(i.Keys), float64(before.Keys), 0},
		{"files", float64(i.Files), float64(before.Files), 0},
		{"cgroups", float64(i.Cgroups), float64(before.Cgroups), 0},
		{"mounts", float64(i.Mounts), float64(before.Mounts), 0},
	} {
		if c.now > c.before+c.allow {
			err = errors.Join(err, fmt.Errorf("%s: %.1f, want at most %.1f", c.what, c.now, c.before+c.allow))
		}
	}
	return err
}
