/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package kubelet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/test/utils/ktesting"
)

func TestRestartPod(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	require.Equal(t, v1.PodRunning, r.status().Phase)
	require.Equal(t, v1.PodCondition{}, r.condition(v1.PodRestarting))

	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30", "s/30"}, r.stopped, "regular containers, then sidecars, each with its grace period")
	require.Equal(t, 2, r.syncs, "the worker is not given the pod once more, which may be an old one by now")
	require.Empty(t, r.synced, "the runtime manager sees a new pod")
	require.Equal(t, map[string]int{"a": 0, "s": 0, "x": 0, "y": 0}, r.counts)
	require.Contains(t, r.events(), "Normal PodRestarting Container x exited with code 88, triggering pod restart")
	c := r.condition(v1.PodRestarting)
	require.Equal(t, v1.ConditionTrue, c.Status)
	require.Equal(t, "ContainerExited", c.Reason)
	require.Equal(t, "Container x exited with code 88, triggering pod restart", c.Message)
	require.Equal(t, v1.PodRunning, r.status().Phase)
	for name, code := range map[string]int32{"a": 0, "s": 143, "x": 88, "y": 143} {
		s := r.container(name)
		require.Equal(t, &v1.ContainerStateWaiting{Reason: PodInitializing}, s.State.Waiting, name)
		require.Equal(t, code, s.LastTerminationState.Terminated.ExitCode, name)
		require.Equal(t, "test://"+name+"-0", s.LastTerminationState.Terminated.ContainerID, name)
		require.Equal(t, int32(0), s.RestartCount, name)
	}

	r.again()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	require.Equal(t, "ContainersStarted", r.condition(v1.PodRestarting).Reason)
	require.Equal(t, v1.PodRunning, r.status().Phase)
	for _, name := range []string{"a", "s", "x", "y"} {
		require.Equal(t, int32(1), r.container(name).RestartCount, name)
	}
	require.Equal(t, int32(88), r.container("x").LastTerminationState.Terminated.ExitCode)
}

func TestRestartPodBackOff(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync(), "the first restart is immediate")
	r.again()
	r.events()

	syncs, exited := r.syncs, r.fake.fakeClock.Now()
	r.stopped = nil
	r.exit("s", 88)
	for range 2 {
		_, tCtx := ktesting.NewTestContext(t)
		_, postSync, err := r.kubelet.syncPodForTest(tCtx, r.pod, r.podStatus())
		require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
		at, ok := restart.MinBackoffExpiration(err)
		require.True(t, ok)
		require.Equal(t, exited.Add(10*time.Second), at)
		require.Equal(t, syncs, r.syncs, "nothing is started")
		require.Equal(t, r.stopped != nil && hasPostSync, postSync != nil)
		r.stopped = nil
	}
	require.Equal(t, []string{
		"Normal PodRestarting Container s exited with code 88, triggering pod restart",
		"Warning BackOff Back-off restarting pod foo: Container s exited with code 88, triggering pod restart: waiting 10s, next start at " +
			exited.Add(10*time.Second).UTC().Format(time.RFC3339),
	}, r.events(), "one event each, however often it is asked")
	require.Equal(t, v1.PodRunning, r.status().Phase)
	for _, name := range []string{"a", "s", "x", "y"} {
		require.Equal(t, &v1.ContainerStateWaiting{
			Reason:  "CrashLoopBackOff",
			Message: "back-off 10s restarting pod foo: Container s exited with code 88, triggering pod restart",
		}, r.container(name).State.Waiting, name)
	}

	r.fake.fakeClock.Step(10 * time.Second)
	require.NoError(t, r.sync())
	require.Equal(t, syncs+1, r.syncs)
	require.Equal(t, &v1.ContainerStateWaiting{Reason: PodInitializing}, r.container("x").State.Waiting, "what it waited for is over")
}

func TestRestartAllContainers(t *testing.T) {
	needsRestartAllContainers(t)
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartAllContainers), nil)
	r.run()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.AllContainersRestarting).Status)
	r.exit("y", 88)
	require.NoError(t, r.sync())
	slices.Sort(r.stopped)
	require.Equal(t, []string{"s/0", "x/0"}, r.stopped, "all at once, and without a grace period")
	c := r.condition(v1.AllContainersRestarting)
	require.Equal(t, v1.ConditionTrue, c.Status)
	require.Equal(t, "Container y exited with code 88, triggering pod restart", c.Message)
	require.Equal(t, int32(88), r.container("y").LastTerminationState.Terminated.ExitCode)
	r.again()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.AllContainersRestarting).Status)
	require.Equal(t, int32(1), r.container("y").RestartCount)

	r.exit("y", 88)
	require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff, "the second one waits")
}

func TestRestartPodInitContainerFails(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.fake.fakeClock.Step(2 * time.Second)
	r.start("a")
	r.exit("a", 1)
	require.NoError(t, r.sync())
	require.Equal(t, v1.PodFailed, r.status().Phase)
	require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
}

func TestRestartPodKubeletRestarts(t *testing.T) {
	tests := map[string]struct {
		// started has the containers of the new run that are running when the
		// kubelet ends.
		started []string
		// stopped has the containers that the next sync stops.
		stopped []string
		want    []string
	}{
		"before anything is started": {},
		"with some started":          {started: []string{"s", "x"}, want: []string{"x", "s", "a", "x", "s", "a"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
			r.run()
			r.exit("x", 88)
			require.NoError(t, r.sync())
			r.fake.fakeClock.Step(2 * time.Second)
			if tc.started != nil {
				r.start("a")
				r.exit("a", 0)
				r.start(tc.started...)
			}
			r.pod.Status = r.status()
			r.stopped, r.synced = nil, nil
			r.restartKubelet()
			require.NoError(t, r.sync())
			require.Equal(t, tc.stopped, r.stopped)
			require.Equal(t, tc.want, r.synced)
			require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			require.Equal(t, v1.PodRunning, r.status().Phase)
		})
	}
}

func TestRestartPodGates(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), map[featuregate.Feature]bool{features.RestartPodOnContainerExits: false})
		r.run()
		r.exit("x", 88)
		require.NoError(t, r.sync())
		require.Empty(t, r.stopped)
		require.Equal(t, int32(88), r.container("x").State.Terminated.ExitCode)
		require.Equal(t, v1.PodCondition{}, r.condition(v1.PodRestarting))
		require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
		require.Zero(t, r.readStopped)
	})
	t.Run("off while it restarts", func(t *testing.T) {
		pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "ContainerExited", LastTransitionTime: metav1.Now(),
		}}
		r := newRestartTest(t, pod, map[featuregate.Feature]bool{features.RestartPodOnContainerExits: false})
		r.pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(r.fake.fakeClock.Now().Add(time.Second))
		r.start("a")
		r.exit("a", 0)
		r.start("s", "x", "y")
		r.exit("x", 88)
		require.NoError(t, r.sync())
		require.Equal(t, []string{"y/30", "s/30"}, r.stopped, "it is finished")
		r.again()
		require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status, "and written to the API")
	})
	t.Run("off, and the condition is of others", func(t *testing.T) {
		pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "Theirs", LastTransitionTime: metav1.Now(),
		}}
		r := newRestartTest(t, pod, map[featuregate.Feature]bool{features.RestartPodOnContainerExits: false})
		r.run()
		r.exit("x", 88)
		require.NoError(t, r.sync())
		require.Empty(t, r.stopped)
		require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
	})
	t.Run("on, and the condition is of others", func(t *testing.T) {
		pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
		theirs := v1.PodCondition{Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "Theirs"}
		pod.Status.Conditions = []v1.PodCondition{theirs}
		r := newRestartTest(t, pod, nil)
		r.run()
		require.NotNil(t, r.kubelet.podRestarts.get(r.pod.UID))
		require.Equal(t, theirs, r.condition(v1.PodRestarting))
	})
	t.Run("off, and no rule restarts the pod", func(t *testing.T) {
		pod := restartablePod("Restart")
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "Mine"}}
		r := newRestartTest(t, pod, map[featuregate.Feature]bool{features.RestartPodOnContainerExits: false})
		r.run()
		require.Empty(t, r.stopped)
		require.Equal(t, pod.Status.Conditions[0], r.condition(v1.PodRestarting), "it is not the kubelet's to change, and no reason to reconcile for ever")
	})
}

// If the sandbox is lost during a restart, Startup is repeated in the same sync,
// without another trigger and without a back-off. Containers that ran in the old
// sandbox do not fail the pod.
func TestRestartPodSandboxLost(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.fake.fakeClock.Step(2 * time.Second)
	r.start("a")
	r.exit("a", 255)
	r.events()
	r.sandboxLost = true
	syncs := r.syncs
	require.NoError(t, r.sync())
	require.Equal(t, syncs+1, r.syncs)
	require.Empty(t, r.synced, "the runtime manager sees a new pod")
	require.Equal(t, 1, r.counts["a"])
	require.Empty(t, r.events())
	require.Equal(t, v1.PodRunning, r.status().Phase)
	require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
}

// A container whose startup probe passed before the kubelet was restarted is not
// probed again.
func TestRestartPodStartedBeforeKubelet(t *testing.T) {
	pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].StartupProbe = &v1.Probe{}
	}
	r := newRestartTest(t, pod, nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.again()
	require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status, "the startup probes have not passed")
	s := r.status()
	started := true
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].Started = &started
	}
	logger, _ := ktesting.NewTestContext(t)
	r.kubelet.statusManager.SetPodStatus(logger, pod, s)
	r.pod.Status = s
	r.restartKubelet()
	require.NoError(t, r.sync())
	require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
}

func TestRestartPodStopFails(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	syncs := r.syncs
	r.exit("x", 88)
	r.kubelet.podRestarts.runtime = failingStopper{r}
	err := r.sync()
	require.ErrorContains(t, err, "no")
	_, isBackOff := restart.MinBackoffExpiration(err)
	require.False(t, isBackOff)
	require.Equal(t, syncs, r.syncs)
}

// A pod whose containers could not start is not stopped either.
func TestRestartPodWithoutNetwork(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	syncs := r.syncs
	r.exit("x", 88)
	r.kubelet.runtimeState.setNetworkState(errors.New("no network"))
	for range 3 {
		require.ErrorContains(t, r.sync(), "no network")
		require.Empty(t, r.stopped)
		require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
		r.fake.fakeClock.Step(40 * time.Second)
	}
	r.kubelet.runtimeState.setNetworkState(nil)
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30", "s/30"}, r.stopped, "the grace period begins with the stop")
	require.Equal(t, syncs+1, r.syncs)
}

// lateVolumes are volumes that take long to attach.
type lateVolumes struct {
	volumemanager.VolumeManager
	wait func()
}

func (v lateVolumes) WaitForAttachAndMount(context.Context, *v1.Pod) error {
	v.wait()
	return nil
}

// A sync that waits long for volumes takes no time from the containers.
func TestRestartPodWithLateVolumes(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	r.kubelet.volumeManager = lateVolumes{r.kubelet.volumeManager, func() { r.fake.fakeClock.Step(40 * time.Second) }}
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
}

// A sync that fails while the pod waits does not extend the wait.
func TestRestartPodSyncFailsInBackOff(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.again()
	r.exit("x", 88)
	require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff)
	r.kubelet.containerManager = withoutCgroups{r.kubelet.containerManager, errors.New("no cgroup")}
	err := r.sync()
	require.ErrorContains(t, err, "no cgroup")
	at, found := restart.MinBackoffExpiration(err)
	require.True(t, found)
	require.Equal(t, r.fake.fakeClock.Now().Add(10*time.Second), at)
	// The phase needs nothing that is left of the pod.
	r.statuses = nil
	require.Error(t, r.sync())
	require.Equal(t, v1.PodRunning, r.status().Phase)
}

// A failed hook affects only the instance that it stopped, and not the next one.
func TestRestartPodAfterFailedHook(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 0)
	for _, err := range []error{kuberuntime.ErrPostStartHook, nil} {
		r.result.SyncResults = []*kubecontainer.SyncResult{{Action: kubecontainer.StartContainer, Target: "x", Error: err}}
		_ = r.sync()
	}
	r.result.SyncResults = nil
	// The instance of the failed hook has been removed in the meantime.
	r.start("x")
	require.NoError(t, r.sync())
	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
}

// The kubelet learns only from the runtime that a static pod has reached Startup.
func TestRestartStaticPodKubeletRestarts(t *testing.T) {
	t.Run("in Startup", func(t *testing.T) {
		r := newRestartTest(t, staticPod(restartablePod(v1.ContainerRestartRuleActionRestartPod)), nil)
		r.run()
		r.fake.fakeClock.Step(5 * time.Second)
		r.exit("x", 88)
		require.NoError(t, r.sync())
		r.fake.fakeClock.Step(2 * time.Second)
		r.start("a")
		r.events()
		r.stopped = nil
		r.restartKubelet()
		require.NoError(t, r.sync())
		require.Empty(t, r.stopped)
		require.Empty(t, r.events())
		require.Equal(t, []string{"a", "a"}, r.synced, "what was started is of the present run")
		require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
		r.exit("a", 0)
		r.start("s", "x", "y")
		require.NoError(t, r.sync())
		require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	})
	t.Run("when all had been started", func(t *testing.T) {
		r := newRestartTest(t, staticPod(restartablePod(v1.ContainerRestartRuleActionRestartPod)), nil)
		r.run()
		r.exit("x", 88)
		require.NoError(t, r.sync())
		condition := r.condition(v1.PodRestarting)
		require.Equal(t, v1.ConditionTrue, condition.Status)
		r.fake.fakeClock.Step(2 * time.Second)
		r.start("a")
		r.exit("a", 0)
		r.start("s", "x", "y")
		r.restartKubelet()
		require.NoError(t, r.sync())
		mirrorPod := r.pod.DeepCopy()
		mirrorPod.UID = "mirror"
		mirrorPod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "api", kubetypes.ConfigMirrorAnnotationKey: r.pod.Annotations[kubetypes.ConfigHashAnnotationKey]}
		mirrorPod.Status.Conditions = []v1.PodCondition{condition}
		r.kubelet.podManager.AddPod(mirrorPod)
		require.NoError(t, r.sync())
		require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	})
	t.Run("before the trigger was seen", func(t *testing.T) {
		r := newRestartTest(t, staticPod(restartablePod(v1.ContainerRestartRuleActionRestartPod)), nil)
		r.run()
		r.fake.fakeClock.Step(5 * time.Second)
		r.exit("x", 88)
		r.events()
		r.restartKubelet()
		require.NoError(t, r.sync())
		require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
		require.Len(t, r.events(), 1)
	})
	t.Run("after it stopped a container that waits, and another one started", func(t *testing.T) {
		r := newRestartTest(t, staticPod(restartablePod(v1.ContainerRestartRuleActionRestartPod)), nil)
		r.run()
		r.fake.fakeClock.Step(5 * time.Second)
		r.exit("x", 88)
		r.lastStopped, r.stoppedAt = map[string]string{"x": "test://x-0"}, stopTime(r.fake.fakeClock.Now())
		r.exit("y", 0)
		r.fake.fakeClock.Step(2 * time.Second)
		r.start("y")
		r.restartKubelet()
		require.NoError(t, r.sync())
		require.Empty(t, r.stopped)
		require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
	})
}

// A static pod may change and keep its UID.
func TestRestartPodChanges(t *testing.T) {
	r := newRestartTest(t, staticPod(restartablePod(v1.ContainerRestartRuleActionRestartPod)), nil)
	r.run()
	r.pod = r.pod.DeepCopy()
	r.pod.Spec.Containers[0].RestartPolicyRules[0].ExitCodes.Values = []int32{99}
	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Empty(t, r.stopped, "the rule for 88 is gone")
	r.start("x")
	require.NoError(t, r.sync())
	r.exit("x", 99)
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
}

// With the gate off, upstream's code handles RestartAllContainers.
func TestRestartAllContainersUpstream(t *testing.T) {
	needsRestartAllContainers(t)
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartAllContainers), nil)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletRestartAllContainersBackOff, false)
	r.restartKubelet()
	r.upstream = true
	r.run()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.AllContainersRestarting).Status)
	r.exit("y", 88)
	require.NoError(t, r.sync())
	require.Equal(t, v1.ConditionTrue, r.condition(v1.AllContainersRestarting).Status)
	require.True(t, r.restartingAll)
	require.Empty(t, r.stopped, "it is for the runtime manager")
	require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
}

// A container may have rules with both actions. If upstream's code restarts the
// containers of a pod that would be done otherwise, an exit after that restarts the pod.
func TestRestartPodAfterUpstream(t *testing.T) {
	needsRestartAllContainers(t)
	all := v1.ContainerRestartRule{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}
	run := func(r *restartTest) {
		r.run()
		r.exit("y", 0)
	}
	restarts := func(r *restartTest) { r.restartKubelet() }
	tests := map[string]struct {
		// before is called before cause exits, and after when it has.
		before, after func(*restartTest)
		cause         string
		// meanwhile is called if the first attempt to remove the containers fails.
		meanwhile func(*restartTest)
		// startup is true if the exit is in Startup.
		startup bool
	}{
		"a regular container":                        {before: run, cause: "x"},
		"an init container":                          {before: func(r *restartTest) { r.start("a") }, cause: "a"},
		"the kubelet restarts":                       {before: run, cause: "x", after: restarts},
		"the kubelet restarts after it saw the exit": {before: run, cause: "x", meanwhile: restarts},
		"an init container in Startup": {before: func(r *restartTest) {
			r.run()
			r.exit("x", 88)
			require.NoError(r.t, r.sync())
			r.fake.fakeClock.Step(2 * time.Second)
			r.start("a")
		}, cause: "a", startup: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
			for _, c := range []*v1.Container{&pod.Spec.InitContainers[0], &pod.Spec.InitContainers[1], &pod.Spec.Containers[0]} {
				c.RestartPolicyRules = append(slices.Clone(c.RestartPolicyRules), all)
			}
			r := newRestartTest(t, pod, nil)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletRestartAllContainersBackOff, false)
			r.restartKubelet()
			r.upstream = true
			tc.before(r)
			require.NoError(t, r.sync())
			previous := len(r.statuses) - 1
			r.exit(tc.cause, 42)
			if tc.after != nil {
				tc.after(r)
			}
			require.NoError(t, r.sync())
			require.True(t, r.restartingAll)
			if tc.meanwhile != nil {
				tc.meanwhile(r)
				require.NoError(t, r.sync())
				require.True(t, r.restartingAll)
			}
			r.events()
			if tc.startup {
				r.statuses = r.statuses[:previous]
			} else {
				r.statuses = nil
			}
			require.NoError(t, r.sync())
			require.False(t, r.restartingAll)
			require.Empty(t, r.events(), "the pod is not restarted again")
			require.Equal(t, tc.startup, r.condition(v1.PodRestarting).Status == v1.ConditionTrue)

			r.fake.fakeClock.Step(time.Hour)
			r.start("a")
			r.exit("a", 0)
			r.start("s", "x", "y")
			require.NoError(t, r.sync())
			require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			r.exit("x", 88)
			require.NoError(t, r.sync())
			require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			require.Contains(t, r.events(), "Normal PodRestarting Container x exited with code 88, triggering pod restart")
			require.Empty(t, r.synced, "the runtime manager sees a new pod")
		})
	}
}

// A pod that is done stays so, although upstream's code could restart its containers.
func TestRestartPodDoneWithUpstream(t *testing.T) {
	needsRestartAllContainers(t)
	pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
	rules := slices.Clone(pod.Spec.Containers[0].RestartPolicyRules)
	rules[0].Action = v1.ContainerRestartRuleActionRestartAllContainers
	pod.Spec.Containers[0].RestartPolicyRules = rules
	r := newRestartTest(t, pod, nil)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletRestartAllContainersBackOff, false)
	r.restartKubelet()
	r.upstream = true
	r.run()
	r.exit("x", 0)
	r.exit("y", 0)
	for range 2 {
		require.NoError(t, r.sync())
		require.Equal(t, restartpod.PhaseDone, r.kubelet.podRestarts.get(pod.UID).plan.Phase)
		r.fake.fakeClock.Step(time.Second)
		r.exit("s", 88)
	}
	require.Equal(t, v1.PodSucceeded, r.status().Phase)
	require.Empty(t, r.stopped)
}
