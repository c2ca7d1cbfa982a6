// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/node"
)

// patience is how long anything but a delay of the back-off may take.
const patience = 30 * time.Second

// triggerExit is the exit code of what triggers a restart of a pod.
const triggerExit = 42

// container returns one whose actor has the lives given.
func container(name string, lives ...string) v1.Container {
	return v1.Container{
		Name: name, Image: node.ActorImage, ImagePullPolicy: v1.PullNever, Args: lives,
		Env:          []v1.EnvVar{{Name: "CONTAINER", Value: name}},
		VolumeMounts: []v1.VolumeMount{{Name: "pod", MountPath: "/pod"}, {Name: "data", MountPath: "/data"}},
	}
}

// sidecar is a container that goes among the init containers.
func sidecar(name string, lives ...string) v1.Container {
	c := container(name, lives...)
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

// triggering adds the rule that restarts the pod on triggerExit.
func triggering(c v1.Container) v1.Container {
	return triggeringBy(c, v1.ContainerRestartRuleAction(*actionFlag))
}

// triggeringBy is triggering with another action than that under test.
func triggeringBy(c v1.Container, action v1.ContainerRestartRuleAction) v1.Container {
	return ruled(c, action, v1.ContainerRestartRuleOnExitCodesOpIn, triggerExit)
}

// ruled adds a rule.
func ruled(c v1.Container, action v1.ContainerRestartRuleAction, operator v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.Container {
	if c.RestartPolicy == nil {
		c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyNever)
	}
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes},
	}}
	return c
}

// preStop adds a hook that notes "pre-stop", and "pre-stop-end" after d.
func preStop(c v1.Container, d time.Duration) v1.Container {
	c.Lifecycle = &v1.Lifecycle{PreStop: noting("pre-stop", d)}
	return c
}

// noting is a hook that notes an event, and its end after d.
func noting(event string, d time.Duration) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/actor", "note", event, d.String()}}}
}

// pod is a pod of a scenario. It is deleted with the scenario.
type pod struct {
	*e2e
	t    *testing.T
	name string
	uid  types.UID
	// dir is the host's side of the pod's folder /pod.
	dir string
	// sandboxes are those that the pod had before the trigger.
	sandboxes []string
}

// podSpec returns the spec of a pod whose own policy restarts nothing.
func podSpec(inits []v1.Container, containers ...v1.Container) v1.PodSpec {
	return v1.PodSpec{
		NodeName: node.Name, RestartPolicy: v1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		Tolerations:                   []v1.Toleration{{Operator: v1.TolerationOpExists}},
		TerminationGracePeriodSeconds: ptr.To(int64(8)),
		InitContainers:                inits, Containers: containers,
	}
}

// alwaysSpec is podSpec for a pod whose own policy restarts everything.
func alwaysSpec(inits []v1.Container, containers ...v1.Container) v1.PodSpec {
	spec := podSpec(inits, containers...)
	spec.RestartPolicy = v1.RestartPolicyAlways
	return spec
}

// newPod returns a pod that is not created yet, with the name of the test. Where a
// test has several, parts of a name tell them apart.
func (e *e2e) newPod(t *testing.T, parts ...string) *pod {
	name := strings.ToLower(strings.Join(append([]string{filepath.Base(t.Name())}, parts...), "-"))
	p := &pod{e2e: e, t: t, name: name, dir: e.Path("pods", name)}
	require.NoError(t, os.MkdirAll(filepath.Dir(p.dir), 0o777))
	require.NoError(t, os.Mkdir(p.dir, 0o777), "another scenario has the same name")
	return p
}

// withVolumes adds the two folders that actor uses.
func (p *pod) withVolumes(spec v1.PodSpec) v1.PodSpec {
	spec.Volumes = append(slices.Clone(spec.Volumes),
		v1.Volume{Name: "pod", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: p.dir}}},
		v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	return spec
}

// create creates a pod with the name of newPod.
func (e *e2e) create(t *testing.T, spec v1.PodSpec, parts ...string) *pod {
	p := e.newPod(t, parts...)
	p.create(spec)
	return p
}

// create creates the pod.
func (p *pod) create(spec v1.PodSpec) {
	p.t.Helper()
	created, err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(p.ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: metav1.NamespaceDefault},
		Spec:       p.withVolumes(spec),
	}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	p.uid = created.UID
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.dump()
		}
		p.delete(1)
	})
}

// createStatic makes a pod of a file, and returns when the API server shows it.
func (e *e2e) createStatic(t *testing.T, spec v1.PodSpec) *pod {
	p := e.newPod(t)
	p.uid = uuid.NewUUID()
	manifest := p.writeManifest(spec)
	p.name += "-" + node.Name
	t.Cleanup(func() {
		if t.Failed() {
			p.dump()
		}
		assert.NoError(t, os.Remove(manifest))
	})
	p.latest("the mirror", func(*v1.Pod) error { return nil })
	return p
}

// writeManifest writes the file of a static pod, anew or for the first time. It
// returns the file's path.
func (p *pod) writeManifest(spec v1.PodSpec) string {
	p.t.Helper()
	name := filepath.Base(p.dir)
	manifest, draft := p.Path("manifests", name+".json"), p.Path("pods", name+".json")
	text, err := json.Marshal(v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		// Without a UID in the file, its content would be what the UID is made of.
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: p.uid},
		Spec:       p.withVolumes(spec),
	})
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(draft, text, 0o644))
	// The kubelet must not read half of it.
	require.NoError(p.t, os.Rename(draft, manifest))
	return manifest
}

// delete asks the API server to, with a grace period in seconds.
func (p *pod) delete(grace int64) {
	err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).Delete(p.ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if !apierrors.IsNotFound(err) {
		assert.NoError(p.t, err)
	}
}

// signal makes the file that a step wait=NAME of the pod waits for.
func (p *pod) signal(name string) {
	p.sandboxes = p.listSandboxes()
	p.put(name)
}

// put makes a file in the pod's folder, and remove removes it.
func (p *pod) put(name string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, name), nil, 0o644))
}

func (p *pod) remove(name string) {
	p.t.Helper()
	require.NoError(p.t, os.Remove(filepath.Join(p.dir, name)))
}

// await waits until a version of the pod satisfies the check, and returns it.
func (p *pod) await(what string, limit time.Duration, check func(*v1.Pod) error) *v1.Pod {
	p.t.Helper()
	seen := 0
	var found *v1.Pod
	require.NoError(p.t, node.Await(p.ctx, what+" of pod "+p.name, limit, func(context.Context) error {
		history := p.pods.of(p.name)
		err := errors.New("there is no such pod")
		for ; seen < len(history); seen++ {
			if err = check(history[seen].pod); err == nil {
				found = history[seen].pod
				return nil
			}
		}
		if len(history) > 0 {
			err = check(history[len(history)-1].pod)
		}
		return err
	}))
	return found
}

// latest waits until the newest version of the pod satisfies the check.
func (p *pod) latest(what string, check func(*v1.Pod) error) *v1.Pod {
	p.t.Helper()
	var found *v1.Pod
	require.NoError(p.t, node.Await(p.ctx, what+" of pod "+p.name, patience, func(context.Context) error {
		history := p.pods.of(p.name)
		if len(history) == 0 {
			return errors.New("there is no such pod")
		}
		found = history[len(history)-1].pod
		return check(found)
	}))
	return found
}

// awaitKubelet waits until the pod as the kubelet knows it satisfies the check. Of a
// static pod the API server has an image that is not kept up to date.
func (p *pod) awaitKubelet(what string, check func(*v1.Pod) error) {
	p.t.Helper()
	require.NoError(p.t, node.Await(p.ctx, what+" of pod "+p.name, time.Minute, func(ctx context.Context) error {
		text, err := p.kube.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).SubResource("proxy").Suffix("pods").DoRaw(ctx)
		if err != nil {
			return err
		}
		var pods v1.PodList
		if err := json.Unmarshal(text, &pods); err != nil {
			return err
		}
		for i := range pods.Items {
			if pods.Items[i].UID == p.uid {
				return check(&pods.Items[i])
			}
		}
		return errors.New("the kubelet has no such pod")
	}))
}

// running waits until all containers of the pod but init containers run.
func (p *pod) running() *v1.Pod {
	p.t.Helper()
	return p.latest("the running containers", func(now *v1.Pod) error {
		for _, s := range append(slices.Clone(now.Status.ContainerStatuses), sidecars(now)...) {
			if s.State.Running == nil {
				return fmt.Errorf("%s does not run: %+v", s.Name, s.State)
			}
		}
		if len(now.Status.ContainerStatuses) == 0 {
			return errors.New("it has no status")
		}
		return nil
	})
}

// sidecars returns the statuses of the pod's sidecars.
func sidecars(now *v1.Pod) (found []v1.ContainerStatus) {
	for i, c := range now.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways && i < len(now.Status.InitContainerStatuses) {
			found = append(found, now.Status.InitContainerStatuses[i])
		}
	}
	return found
}

// statuses returns those of init containers, sidecars and regular containers.
func statuses(now *v1.Pod) []v1.ContainerStatus {
	return append(slices.Clone(now.Status.InitContainerStatuses), now.Status.ContainerStatuses...)
}

// statusOf returns that of a container, or an empty one.
func statusOf(now *v1.Pod, name string) v1.ContainerStatus {
	for _, s := range statuses(now) {
		if s.Name == name {
			return s
		}
	}
	return v1.ContainerStatus{}
}

// conditionOf is the type of the condition for an action.
func conditionOf(action v1.ContainerRestartRuleAction) v1.PodConditionType {
	if action == node.ActionRestartPod {
		return "PodRestarting"
	}
	return v1.AllContainersRestarting
}

// conditionIn returns the condition of a type, or an empty one.
func conditionIn(now *v1.Pod, t v1.PodConditionType) v1.PodCondition {
	for _, c := range now.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return v1.PodCondition{}
}

// restart is what a scenario expects of one.
type restart struct {
	// before is the pod before it.
	before *v1.Pod
	// cause is the container that was the trigger.
	cause  string
	action v1.ContainerRestartRuleAction
	// newSandbox is true where the node lost the old one.
	newSandbox bool
	// unseen is true where the API server cannot have seen the condition be True.
	unseen bool
}

// restarted waits for the end of a restart and checks everything that is to hold
// after any.
func (p *pod) restarted(r restart) *v1.Pod {
	p.t.Helper()
	if r.action == "" {
		r.action = v1.ContainerRestartRuleAction(*actionFlag)
	}
	kind := conditionOf(r.action)
	after := p.latest("the end of the restart", func(now *v1.Pod) error {
		if c := conditionIn(now, kind); c.Status != v1.ConditionFalse {
			return fmt.Errorf("condition %s is %q", kind, c.Status)
		}
		for _, s := range append(slices.Clone(now.Status.ContainerStatuses), sidecars(now)...) {
			if s.State.Running == nil {
				return fmt.Errorf("%s does not run: %+v", s.Name, s.State)
			}
			if s.ContainerID == statusOf(r.before, s.Name).ContainerID {
				return fmt.Errorf("%s was not restarted", s.Name)
			}
		}
		return nil
	})
	p.assertKept(r, after)
	p.assertStatuses(r, after)
	p.assertOver()
	p.assertCondition(r, kind)
	if statusOf(after, r.cause).State.Running != nil {
		p.assertPreviousLog(r.cause)
	}
	p.alwaysRunning()
	return after
}

// assertKept checks that the pod is still the same.
func (p *pod) assertKept(r restart, after *v1.Pod) {
	p.t.Helper()
	assert.Equal(p.t, r.before.UID, after.UID, "the pod's UID")
	if !r.newSandbox {
		assert.NotEmpty(p.t, after.Status.PodIP, "the pod's IP")
		assert.Equal(p.t, r.before.Status.PodIP, after.Status.PodIP, "the pod's IP")
		assert.Len(p.t, p.sandboxes, 1, "sandboxes before the restart")
		assert.Equal(p.t, p.sandboxes, p.listSandboxes(), "the pod's sandboxes")
	}
	for _, s := range statuses(r.before) {
		if s.ContainerID == "" {
			continue
		}
		for n := 1; n <= p.starts(s.Name); n++ {
			assert.FileExists(p.t, filepath.Join(p.dataDir(), fmt.Sprintf("%s.%d", s.Name, n)), "what start %d of %s put into the emptyDir", n, s.Name)
		}
	}
}

// assertStatuses checks restart counts and last states.
func (p *pod) assertStatuses(r restart, after *v1.Pod) {
	p.t.Helper()
	// A kubelet before v1.36 forgets the last state of an init container once it has removed
	// the container.
	initOnly := map[string]bool{}
	for _, c := range after.Spec.InitContainers {
		initOnly[c.Name] = c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways
	}
	for _, s := range statuses(after) {
		old := statusOf(r.before, s.Name)
		if old.ContainerID == "" {
			assert.Zero(p.t, s.RestartCount, "restarts of %s, which had not started", s.Name)
			continue
		}
		assert.Equal(p.t, old.RestartCount+1, s.RestartCount, "restarts of %s", s.Name)
		assert.NotEqual(p.t, old.ContainerID, s.ContainerID, "container ID of %s", s.Name)
		last := s.LastTerminationState.Terminated
		if last == nil && initOnly[s.Name] && p.before(p.t, 36) {
			continue
		}
		if !assert.NotNil(p.t, last, "last state of %s", s.Name) {
			continue
		}
		assert.Equal(p.t, old.ContainerID, last.ContainerID, "container ID in the last state of %s", s.Name)
		assert.False(p.t, last.StartedAt.IsZero() || last.FinishedAt.IsZero(), "times in the last state of %s: %+v", s.Name, last)
		if s.Name == r.cause {
			assert.EqualValues(p.t, triggerExit, last.ExitCode, "exit code in the last state of %s", s.Name)
		}
	}
	// A status that the kubelet made up for want of a better one.
	for _, seen := range p.pods.of(p.name) {
		for _, s := range statuses(seen.pod) {
			for _, state := range []v1.ContainerState{s.State, s.LastTerminationState} {
				if end := state.Terminated; end != nil && end.Reason == "ContainerStatusUnknown" {
					assert.Fail(p.t, fmt.Sprintf("at %s the status of %s was %+v", seen.at.Format("05.000"), s.Name, s))
					return
				}
			}
		}
	}
}

// assertCondition checks the history of the condition, and the event.
func (p *pod) assertCondition(r restart, kind v1.PodConditionType) {
	p.t.Helper()
	message := fmt.Sprintf("Container %s exited with code %d, triggering pod restart", r.cause, triggerExit)
	if !r.unseen {
		want := []string{"True ContainerExited: " + message, "False ContainersStarted: " + message}
		assert.Equal(p.t, want, p.conditions(kind, r.before.ResourceVersion), "history of the condition %s", kind)
	}
	for _, other := range []v1.PodConditionType{conditionOf(node.ActionRestartPod), v1.AllContainersRestarting} {
		if other != kind {
			assert.Empty(p.t, p.conditions(other, r.before.ResourceVersion), "history of the condition %s", other)
		}
	}
	assert.NoError(p.t, node.Await(p.ctx, "the event", 10*time.Second, func(ctx context.Context) error {
		events, err := p.kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=PodRestarting,involvedObject.uid=" + string(p.uid),
		})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("the pod has no event with reason PodRestarting")
		}
		if got := events.Items[len(events.Items)-1].Message; got != message {
			return fmt.Errorf("the event says %q, want %q", got, message)
		}
		return nil
	}))
}

// assertPreviousLog checks that there is the log of the instance before the one
// that runs. Of a container that has ended, as an init container has, the kubelet
// keeps one instance alone.
func (p *pod) assertPreviousLog(name string) {
	p.t.Helper()
	// Right after its start, a kubelet does not know the pod yet, and the program has
	// written nothing yet.
	assert.NoError(p.t, node.Await(p.ctx, "the previous log of "+name, 5*time.Second, func(ctx context.Context) error {
		want := fmt.Sprintf("%s: start %d\n", name, p.starts(name)-1)
		options := &v1.PodLogOptions{Container: name, Previous: true}
		log, err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(p.name, options).DoRaw(ctx)
		if err == nil && string(log) != want {
			err = fmt.Errorf("it is %q, want %q", log, want)
		}
		return err
	}))
}

// conditions returns the states of a condition that followed a version of the
// pod.
func (p *pod) conditions(kind v1.PodConditionType, version string) (states []string) {
	after := version == ""
	for _, s := range p.pods.of(p.name) {
		if c := conditionIn(s.pod, kind); after && c.Type != "" {
			states = append(states, fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message))
		}
		after = after || s.pod.ResourceVersion == version
	}
	return slices.Compact(states)
}

// assertOver checks that a run of a container that is over has stayed so: what
// was a last state is not the present one in any later version of the pod.
func (p *pod) assertOver() {
	p.t.Helper()
	last := map[string]bool{}
	for _, seen := range p.pods.of(p.name) {
		for _, s := range statuses(seen.pod) {
			if end := s.State.Terminated; end != nil && last[end.ContainerID] {
				assert.Fail(p.t, fmt.Sprintf("at %s the previous run of %s was the present one again: %+v", seen.at.Format("05.000"), s.Name, s))
				return
			}
			if end := s.LastTerminationState.Terminated; end != nil && end.ContainerID != "" {
				last[end.ContainerID] = true
			}
		}
	}
}

// attempts returns when the kubelet tried to create a container, the oldest
// first: each time it makes a file for the termination message. Those that found
// no ConfigMap are not among them.
func (p *pod) attempts(name string) (at []time.Time) {
	p.t.Helper()
	files, err := os.ReadDir(p.Path("kubelet", "pods", string(p.uid), "containers", name))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(p.t, err)
	}
	for _, f := range files {
		info, err := f.Info()
		require.NoError(p.t, err)
		at = append(at, info.ModTime())
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// assertAttempts waits until there were so many attempts to start a container,
// and checks that the curve lies between those from the first given on, which
// counts from 0. The retry that upstream makes comes after 10 to 15 s.
func (p *pod) assertAttempts(name string, first, count int) {
	p.t.Helper()
	var at []time.Time
	require.NoError(p.t, node.Await(p.ctx, fmt.Sprintf("attempt %d to start %s of pod %s", count, name, p.name), time.Duration(count)*20*time.Second, func(context.Context) error {
		if at = p.attempts(name); len(at) < count {
			return fmt.Errorf("there were %d", len(at))
		}
		return nil
	}))
	for k := first; k+1 < count; k++ {
		p.assertDelay(fmt.Sprintf("between attempts %d and %d to start %s", k+1, k+2, name), k, at[k+1].Sub(at[k]).Seconds())
	}
}

// assertDelay checks that the k-th delay of the curve, counted from 0, and not
// much more passed.
func (p *pod) assertDelay(what string, k int, took float64) {
	p.t.Helper()
	assert.GreaterOrEqual(p.t, took, curve(k).Seconds()-0.05, "seconds %s", what)
	assert.Less(p.t, took, curve(k).Seconds()+3, "seconds %s", what)
}

// alwaysRunning checks that the pod's phase never left Pending and Running.
func (p *pod) alwaysRunning() {
	p.t.Helper()
	for _, s := range p.pods.of(p.name) {
		if phase := s.pod.Status.Phase; phase != v1.PodPending && phase != v1.PodRunning {
			assert.Fail(p.t, "the pod's phase became "+string(phase))
			return
		}
	}
}

// listSandboxes returns the IDs of the pod's sandboxes, those that ended included.
func (p *pod) listSandboxes() []string {
	out, err := p.Ctr(p.ctx, "containers", "list", "-q",
		fmt.Sprintf(`labels."io.kubernetes.pod.uid"==%s,labels."io.cri-containerd.kind"==sandbox`, p.uid))
	require.NoError(p.t, err)
	return slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		// containerd's warnings come with it.
		return len(line) != 64
	})
}

// dataDir is the host's side of the pod's emptyDir.
func (p *pod) dataDir() string {
	return p.Path("kubelet", "pods", string(p.uid), "volumes", "kubernetes.io~empty-dir", "data")
}

// journal returns what the pod's containers have written so far.
func (p *pod) journal() []node.JournalEvent {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "journal"))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(p.t, err)
	}
	events, err := node.ParseJournal(text)
	require.NoError(p.t, err)
	return events
}

// starts tells how often a container was started.
func (p *pod) starts(name string) (n int) {
	for _, e := range p.journal() {
		if e.Container == name && e.Event == "start" {
			n++
		}
	}
	return n
}

// assertStarts checks how often each container was started. What the API shows
// to run may need a moment to write its line.
func (p *pod) assertStarts(want map[string]int) {
	p.t.Helper()
	got := map[string]int{}
	_ = node.Await(p.ctx, "the starts", 2*time.Second, func(context.Context) error {
		for name := range want {
			got[name] = p.starts(name)
		}
		if !maps.Equal(got, want) {
			return errors.New("not yet")
		}
		return nil
	})
	assert.Equal(p.t, want, got, "starts of the containers")
}

// times returns when the n-th instance of a container had an event.
func (p *pod) times(name string, n int, event string) (at []float64) {
	for _, e := range p.journal() {
		if e.Container == name && e.Start == n && e.Event == event {
			at = append(at, e.At)
		}
	}
	return at
}

// event waits for an event of the n-th instance of a container and returns when
// it was.
func (p *pod) event(name string, n int, event string) float64 {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		if at := p.times(name, n, event); len(at) > 0 {
			return at[0]
		}
		if time.Now().After(deadline) || p.ctx.Err() != nil {
			require.NoError(p.t, context.Cause(p.ctx))
			require.Fail(p.t, fmt.Sprintf("pod %s: start %d of %s had no %q within %v", p.name, n, name, event, patience))
		}
		// Closer than await: what follows is to happen at once.
		time.Sleep(5 * time.Millisecond)
	}
}

// assertOrder checks that events, each "container start event", were in order.
func (p *pod) assertOrder(events ...string) {
	p.t.Helper()
	last, at := "", 0.0
	for _, what := range events {
		f := strings.Fields(what)
		n, err := strconv.Atoi(f[1])
		require.NoError(p.t, err)
		// A container runs a moment before its program has written that.
		now := p.event(f[0], n, f[2])
		assert.GreaterOrEqual(p.t, now, at, "%q came before %q", what, last)
		last, at = what, now
	}
}

// dump prints what is known of the pod.
func (p *pod) dump() {
	var out strings.Builder
	previous := ""
	for _, s := range p.pods.of(p.name) {
		line := string(s.pod.Status.Phase)
		for _, c := range s.pod.Status.Conditions {
			if c.Type == conditionOf(node.ActionRestartPod) || c.Type == v1.AllContainersRestarting {
				line += fmt.Sprintf(" [%s=%s %s %q]", c.Type, c.Status, c.Reason, c.Message)
			}
		}
		for _, c := range statuses(s.pod) {
			line += fmt.Sprintf(" %s:%d:%s/%s", c.Name, c.RestartCount, stateOf(c.State), stateOf(c.LastTerminationState))
		}
		if s.pod.DeletionTimestamp != nil {
			line += " deleted"
		}
		if line != previous {
			fmt.Fprintf(&out, "  %s %s\n", s.at.Format("05.000"), line)
			previous = line
		}
	}
	alive := false
	for _, e := range p.journal() {
		if e.Event != "alive" || !alive {
			fmt.Fprintf(&out, "  %s %s %d %s\n", time.UnixMicro(int64(e.At*1e6)).Format("05.000"), e.Container, e.Start, e.Event)
		}
		alive = e.Event == "alive"
	}
	p.t.Logf("pod %s, UID %s:\n%s", p.name, p.uid, out.String())
}

// stateOf is a state in short.
func stateOf(s v1.ContainerState) string {
	switch {
	case s.Waiting != nil && s.Waiting.Reason == "CrashLoopBackOff":
		return fmt.Sprintf("waiting(%s: %s)", s.Waiting.Reason, s.Waiting.Message)
	case s.Waiting != nil:
		return s.Waiting.Reason
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("exited(%d %s)", s.Terminated.ExitCode, s.Terminated.Reason)
	}
	return "-"
}
