// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// patience is the limit for all waits, in addition to delays of the back-off. It is long
// enough for a busy machine. A scenario that passes never waits for it.
var patience = 3 * time.Minute

// triggerExit is the exit code that triggers a restart of a pod.
const triggerExit = 42

// container returns a container with an actor that has these lives.
func container(name string, lives ...string) v1.Container {
	return v1.Container{
		Name: name, Image: harness.ActorImage, ImagePullPolicy: v1.PullNever, Args: lives,
		Env:          []v1.EnvVar{{Name: "CONTAINER", Value: name}},
		VolumeMounts: []v1.VolumeMount{{Name: "pod", MountPath: "/pod"}, {Name: "data", MountPath: "/data"}},
	}
}

// sidecar returns a sidecar, which belongs to the init containers.
func sidecar(name string, lives ...string) v1.Container {
	c := container(name, lives...)
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

// triggering adds the rule that restarts the pod at triggerExit.
func triggering(c v1.Container) v1.Container {
	return triggeringBy(c, v1.ContainerRestartRuleAction(*actionFlag))
}

// triggeringBy is triggering with a given action.
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

// noting returns a hook that notes an event, and its end after d.
func noting(event string, d time.Duration) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/actor", "note", event, d.String()}}}
}

// pod is a pod of a scenario. It is deleted at the end of the scenario.
type pod struct {
	*e2e
	t    *testing.T
	name string
	uid  types.UID
	// dir is the host's side of the pod's folder /pod.
	dir string
	// annotations are those of the pod that is created, or in the file of a static pod.
	annotations map[string]string
	// data is the source of the volume for data. Without one it is an emptyDir.
	data v1.VolumeSource
	// sandboxes are the IDs of the pod's sandboxes before the trigger.
	sandboxes []string
	// network is the network of the first of them.
	network harness.PodNetwork
	// log returns the kubelet's log since newPod.
	log func() string
}

// podSpec returns the spec of a pod with the restart policy Never.
func podSpec(inits []v1.Container, containers ...v1.Container) v1.PodSpec {
	return v1.PodSpec{
		NodeName: harness.Name, RestartPolicy: v1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		Tolerations:                   []v1.Toleration{{Operator: v1.TolerationOpExists}},
		TerminationGracePeriodSeconds: ptr.To(int64(8)),
		InitContainers:                inits, Containers: containers,
	}
}

// alwaysSpec is podSpec with the restart policy Always.
func alwaysSpec(inits []v1.Container, containers ...v1.Container) v1.PodSpec {
	spec := podSpec(inits, containers...)
	spec.RestartPolicy = v1.RestartPolicyAlways
	return spec
}

// newPod returns a pod with the name of the test, without creating it. If a test has
// several pods, parts are added to their names.
func (e *e2e) newPod(t *testing.T, parts ...string) *pod {
	name := strings.ToLower(strings.Join(append([]string{filepath.Base(t.Name())}, parts...), "-"))
	p := &pod{e2e: e, t: t, name: name, dir: e.Path("pods", name)}
	require.NoError(t, os.MkdirAll(filepath.Dir(p.dir), 0o777))
	require.NoError(t, os.Mkdir(p.dir, 0o777), "another scenario has the same name")
	if e.Kubelet != nil {
		p.log = e.kubeletLog(t)
	}
	return p
}

// withVolumes adds the two folders that actor uses.
func (p *pod) withVolumes(spec v1.PodSpec) v1.PodSpec {
	spec.Volumes = append(slices.Clone(spec.Volumes),
		v1.Volume{Name: "pod", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: p.dir}}},
		v1.Volume{Name: "data", VolumeSource: p.data})
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
	p.requireRulesOf(p.t, spec)
	created, err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(p.ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: metav1.NamespaceDefault, Annotations: p.annotations},
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

// createStatic creates a static pod, and returns when the API server shows it.
func (e *e2e) createStatic(t *testing.T, spec v1.PodSpec) *pod {
	p := e.newPod(t)
	p.uid = uuid.NewUUID()
	manifest := p.writeManifest(spec)
	p.name += "-" + harness.Name
	t.Cleanup(func() {
		if t.Failed() {
			p.dump()
		}
		assert.NoError(t, os.Remove(manifest))
	})
	p.latest("the mirror", func(*v1.Pod) error { return nil })
	return p
}

// writeManifest writes or replaces the file of a static pod, and returns its path.
func (p *pod) writeManifest(spec v1.PodSpec) string {
	p.t.Helper()
	name := filepath.Base(p.dir)
	manifest, draft := p.Path("manifests", name+".json"), p.Path("pods", name+".json")
	text, err := json.Marshal(v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		// Without a UID in the file, the kubelet would derive the UID from its content.
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: p.uid, Annotations: p.annotations},
		Spec:       p.withVolumes(spec),
	})
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(draft, text, 0o644))
	// The rename is atomic, so that the kubelet does not read an incomplete file.
	require.NoError(p.t, os.Rename(draft, manifest))
	return manifest
}

// delete deletes the pod through the API server, with a grace period in seconds.
func (p *pod) delete(grace int64) {
	err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).Delete(p.ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if !apierrors.IsNotFound(err) {
		assert.NoError(p.t, err)
	}
}

// gone waits until the API has the pod no longer.
func (p *pod) gone() {
	p.t.Helper()
	require.NoError(p.t, harness.Await(p.ctx, "the end of pod "+p.name, patience, func(ctx context.Context) error {
		_, err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, p.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = errors.New("it still exists")
		}
		return err
	}))
}

// signal creates the file that a step wait=NAME waits for.
func (p *pod) signal(name string) {
	p.t.Helper()
	p.sandboxes = p.listSandboxes()
	if len(p.sandboxes) > 0 {
		p.network = p.networkOf(p.sandboxes[0])
	}
	p.put(name)
}

// put creates a file in the pod's folder, and remove removes it.
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
	require.NoError(p.t, harness.Await(p.ctx, what+" of pod "+p.name, limit, func(context.Context) error {
		history := p.pods.of(p.name)
		err := errors.New("the pod does not exist")
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
	require.NoError(p.t, harness.Await(p.ctx, what+" of pod "+p.name, patience, func(context.Context) error {
		history := p.pods.of(p.name)
		if len(history) == 0 {
			return errors.New("the pod does not exist")
		}
		found = history[len(history)-1].pod
		return check(found)
	}))
	return found
}

// awaitKubelet waits until the kubelet's version of the pod satisfies the check. The
// mirror pod of a static pod in the API is not always up to date.
func (p *pod) awaitKubelet(what string, check func(*v1.Pod) error) {
	p.t.Helper()
	require.NoError(p.t, harness.Await(p.ctx, what+" of pod "+p.name, patience, func(ctx context.Context) error {
		text, err := p.fromKubelet("pods").DoRaw(ctx)
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

// running waits until all containers of the pod except init containers run.
func (p *pod) running() *v1.Pod {
	p.t.Helper()
	return p.latest("the running containers", func(now *v1.Pod) error {
		for _, s := range append(slices.Clone(now.Status.ContainerStatuses), sidecars(now)...) {
			if s.State.Running == nil {
				return fmt.Errorf("%s does not run: %+v", s.Name, s.State)
			}
		}
		if len(now.Status.ContainerStatuses) == 0 {
			return errors.New("the pod has no container status")
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

// statuses returns the statuses of init containers, sidecars and regular containers.
func statuses(now *v1.Pod) []v1.ContainerStatus {
	return append(slices.Clone(now.Status.InitContainerStatuses), now.Status.ContainerStatuses...)
}

// statusOf returns the status of a container, or an empty one.
func statusOf(now *v1.Pod, name string) v1.ContainerStatus {
	for _, s := range statuses(now) {
		if s.Name == name {
			return s
		}
	}
	return v1.ContainerStatus{}
}

// conditionOf returns the type of the condition for an action.
func conditionOf(action v1.ContainerRestartRuleAction) v1.PodConditionType {
	if action == harness.ActionRestartPod {
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

// listSandboxes returns the IDs of the pod's sandboxes, including stopped ones.
func (p *pod) listSandboxes() []string {
	return p.sandboxesWith("io.kubernetes.pod.uid", string(p.uid))
}

// sandboxesWith returns the IDs of the sandboxes with a label.
func (p *pod) sandboxesWith(label, value string) (ids []string) {
	p.t.Helper()
	list, err := p.runtime().ListPodSandbox(p.ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{label: value}},
	})
	require.NoError(p.t, err)
	for _, s := range list.Items {
		ids = append(ids, s.Id)
	}
	return ids
}

// networkOf returns the network of a sandbox.
func (p *pod) networkOf(sandbox string) harness.PodNetwork {
	p.t.Helper()
	found, err := p.PodNetwork(sandbox)
	require.NoError(p.t, err)
	return found
}

// dataDir returns the path of the pod's volume for data on the host.
func (p *pod) dataDir() string {
	volume := "kubernetes.io~empty-dir/data"
	switch {
	case p.data.CSI != nil:
		volume = "kubernetes.io~csi/data/mount"
	case p.data.PersistentVolumeClaim != nil:
		volume = filepath.Join("kubernetes.io~csi", p.data.PersistentVolumeClaim.ClaimName, "mount")
	}
	return p.Path("kubelet", "pods", string(p.uid), "volumes", volume)
}

// dump prints the history and the journal of the pod.
func (p *pod) dump() {
	var out strings.Builder
	previous := ""
	for _, s := range p.pods.of(p.name) {
		line := string(s.pod.Status.Phase)
		for _, c := range s.pod.Status.Conditions {
			if c.Type == conditionOf(harness.ActionRestartPod) || c.Type == v1.AllContainersRestarting {
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

// stateOf formats a state briefly.
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
