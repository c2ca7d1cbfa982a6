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

package status

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// versionedAPI is an API server with one pod. It increments and checks the pod's
// resource version. The pod is nil after its deletion.
type versionedAPI struct {
	pod     *v1.Pod
	version int
	fails   error
	// requests are the requests since the last check, with the resource version of a
	// patch.
	requests []string
}

func newVersionedAPI(pod *v1.Pod) (*versionedAPI, *manager) {
	a := &versionedAPI{}
	a.change(pod)
	client := &fake.Clientset{}
	client.AddReactor("get", "pods", func(core.Action) (bool, runtime.Object, error) {
		a.requests = append(a.requests, "get")
		if a.pod == nil {
			return true, nil, apierrors.NewNotFound(v1.Resource("pods"), pod.Name)
		}
		return true, a.pod.DeepCopy(), nil
	})
	client.AddReactor("patch", "pods", func(action core.Action) (bool, runtime.Object, error) {
		p, err := a.patch(action.(core.PatchAction).GetPatch())
		return true, p, err
	})
	m := newTestManager(client)
	m.podManager.(mutablePodManager).AddPod(pod.DeepCopy())
	return a, m
}

func (a *versionedAPI) patch(patch []byte) (runtime.Object, error) {
	named := v1.Pod{}
	if err := json.Unmarshal(patch, &named); err != nil {
		return nil, err
	}
	a.requests = append(a.requests, strings.TrimSpace("patch "+named.ResourceVersion))
	switch {
	case a.fails != nil:
		return nil, a.fails
	case a.pod == nil:
		return nil, apierrors.NewNotFound(v1.Resource("pods"), named.Name)
	case named.UID != a.pod.UID, named.ResourceVersion != "" && named.ResourceVersion != a.pod.ResourceVersion:
		return nil, apierrors.NewConflict(v1.Resource("pods"), a.pod.Name, fmt.Errorf("the pod has changed"))
	}
	old, err := json.Marshal(a.pod)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(old, patch, v1.Pod{})
	if err != nil {
		return nil, err
	}
	changed := &v1.Pod{}
	if err := json.Unmarshal(merged, changed); err != nil {
		return nil, err
	}
	a.change(changed)
	return a.pod.DeepCopy(), nil
}

// change is a write by another client.
func (a *versionedAPI) change(pod *v1.Pod) {
	a.version++
	a.pod = pod
	a.pod.ResourceVersion = strconv.Itoa(a.version)
}

func (a *versionedAPI) assertRequests(t *testing.T, want ...string) {
	t.Helper()
	require.Equal(t, want, a.requests)
	a.requests = nil
}

func message(text string) v1.PodStatus {
	return v1.PodStatus{Phase: v1.PodRunning, Message: text}
}

// A repeated write of a status needs one request. Upstream needs two.
func TestKnownPodIsNotRead(t *testing.T) {
	logger, ctx := ktesting.NewTestContext(t)
	pod := getTestPod()
	a, m := newVersionedAPI(pod)
	for i, want := range [][]string{{"get", "patch"}, {"patch 2"}, {"patch 3"}} {
		m.setPodStatusForTest(logger, pod, message(strconv.Itoa(i)))
		m.syncBatchForTest(ctx, false)
		a.assertRequests(t, want...)
		require.Equal(t, strconv.Itoa(i), a.pod.Status.Message)
	}
}

// With the gate off, a repeated write needs two requests as upstream.
func TestKnownPodIsReadWithoutGate(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletPatchPodStatusWithoutGet, false)
	logger, ctx := ktesting.NewTestContext(t)
	pod := getTestPod()
	a, m := newVersionedAPI(pod)
	for i := range 3 {
		m.setPodStatusForTest(logger, pod, message(strconv.Itoa(i)))
		m.syncBatchForTest(ctx, false)
		a.assertRequests(t, "get", "patch")
	}
}

// Changes by others since the last write are kept, except in the kubelet's own fields,
// as if the pod had been read.
func TestKnownPodChanges(t *testing.T) {
	logger, ctx := ktesting.NewTestContext(t)
	condition := v1.PodCondition{Type: "example.com/theirs", Status: v1.ConditionTrue}
	pod := getTestPod()
	a, m := newVersionedAPI(pod)
	m.setPodStatusForTest(logger, pod, message("1"))
	m.syncBatchForTest(ctx, false)

	theirs := a.pod.DeepCopy()
	theirs.Status.Phase, theirs.Status.Conditions = v1.PodFailed, []v1.PodCondition{condition}
	a.change(theirs)
	a.requests = nil
	m.setPodStatusForTest(logger, pod, message("2"))
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "patch 2", "get", "patch")
	require.Equal(t, v1.PodRunning, a.pod.Status.Phase)
	_, c := podutil.GetPodCondition(&a.pod.Status, condition.Type)
	require.NotNil(t, c)

	// The other client may change it again.
	m.setPodStatusForTest(logger, pod, message("3"))
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "get", "patch")
	m.knownPods.pods[pod.UID] = knownPod{at: time.Now().Add(-2 * knownPodLifetime)}
	m.setPodStatusForTest(logger, pod, message("4"))
	m.syncBatchForTest(ctx, false)
	m.setPodStatusForTest(logger, pod, message("5"))
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "get", "patch", "patch 6")
}

// A status that seems unchanged is compared with the status in the API server.
func TestKnownPodUnchanged(t *testing.T) {
	logger, ctx := ktesting.NewTestContext(t)
	pod := getTestPod()
	a, m := newVersionedAPI(pod)
	m.setPodStatusForTest(logger, pod, message("1"))
	m.syncBatchForTest(ctx, false)
	theirs := a.pod.DeepCopy()
	theirs.Status.Message = "theirs"
	a.change(theirs)
	a.requests = nil

	m.podManager.(mutablePodManager).UpdatePod(theirs.DeepCopy())
	m.syncBatchForTest(ctx, true)
	a.assertRequests(t, "get", "patch")
	require.Equal(t, "1", a.pod.Status.Message)
}

// A failed write is left to the next batch, which reads the pod.
func TestKnownPodFails(t *testing.T) {
	logger, ctx := ktesting.NewTestContext(t)
	pod := getTestPod()
	a, m := newVersionedAPI(pod)
	m.setPodStatusForTest(logger, pod, message("1"))
	m.syncBatchForTest(ctx, false)
	a.requests = nil

	a.fails = apierrors.NewInternalError(fmt.Errorf("the server is unwell"))
	m.setPodStatusForTest(logger, pod, message("2"))
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "patch 2")
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "get", "patch")
	a.fails = nil
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "get", "patch")
	require.Equal(t, "2", a.pod.Status.Message)

	gone := a.pod
	a.pod = nil
	m.knownPods.pods[pod.UID] = knownPod{pod: gone.DeepCopy()}
	m.setPodStatusForTest(logger, pod, message("3"))
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "patch 3", "get")

	again := gone.DeepCopy()
	again.UID = "another"
	a.change(again)
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "get")
	_, ok := m.GetPodStatus(pod.UID)
	require.False(t, ok, "the pod was created anew")
}

// Pods that are being deleted are read, and so are pods without a recent write.
func TestKnownPodsAreForgotten(t *testing.T) {
	now := time.Now()
	pod := func(uid string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: "1"}, Status: message("")}
	}
	for name, change := range map[string]func(*v1.Pod){
		"is being deleted":        func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} },
		"has no status":           func(p *v1.Pod) { p.Status = v1.PodStatus{} },
		"has no resource version": func(p *v1.Pod) { p.ResourceVersion = "" },
		"is a mirror pod":         func(p *v1.Pod) { p.Annotations = map[string]string{kubetypes.ConfigMirrorAnnotationKey: "x"} },
	} {
		k := knownPods{}
		k.remember(pod("a"), now)
		changed := pod("a")
		change(changed)
		k.remember(changed, now)
		require.Empty(t, k.pods, name)
	}

	k := knownPods{}
	k.remember(pod("old"), now)
	k.remember(pod("new"), now.Add(knownPodLifetime))
	require.Len(t, k.pods, 2)
	k.remember(pod("new"), now.Add(2*knownPodLifetime))
	require.Len(t, k.pods, 1)

	logger, ctx := ktesting.NewTestContext(t)
	a, m := newVersionedAPI(getTestPod())
	m.setPodStatusForTest(logger, getTestPod(), message("1"))
	m.syncBatchForTest(ctx, false)
	a.requests = nil
	deleted := getTestPod()
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	m.podManager.(mutablePodManager).UpdatePod(deleted)
	m.setPodStatusForTest(logger, deleted, message("2"))
	m.syncBatchForTest(ctx, false)
	a.assertRequests(t, "get", "patch")
}
