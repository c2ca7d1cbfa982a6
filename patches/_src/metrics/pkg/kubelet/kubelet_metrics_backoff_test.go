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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"

	"k8s.io/kubernetes/pkg/kubelet/status"
)

// knownStatuses is a status manager with fixed statuses.
type knownStatuses struct {
	status.Manager
	statuses map[types.UID]v1.PodStatus
}

func (m knownStatuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	s, ok := m.statuses[uid]
	return s, ok
}

// Waiting containers are counted by their statuses, except in a pod that is being
// terminated.
func TestWaitingContainers(t *testing.T) {
	fake := newTestKubelet(t, false)
	defer fake.Cleanup()
	kubelet := fake.kubelet
	waiting := func(reason string) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
	}
	pods := []*v1.Pod{podWithUIDNameNs("1", "one", "n"), podWithUIDNameNs("2", "two", "n"), podWithUIDNameNs("3", "three", "n")}
	kubelet.podManager.SetPods(pods)
	check := func(want string) {
		t.Helper()
		require.NoError(t, testutil.CustomCollectAndCompare(&waitingCollector{kl: kubelet}, strings.NewReader(`
			# HELP kubelet_restart_backoff_waiting_containers [ALPHA] Number of containers whose status is waiting with the reason CrashLoopBackOff.
			# TYPE kubelet_restart_backoff_waiting_containers gauge
			kubelet_restart_backoff_waiting_containers `+want+`
		`), "kubelet_restart_backoff_waiting_containers"))
	}
	statuses := map[types.UID]v1.PodStatus{}
	kubelet.statusManager = knownStatuses{statuses: statuses}
	check("0")
	for _, pod := range pods[:2] {
		statuses[pod.UID] = v1.PodStatus{
			InitContainerStatuses: []v1.ContainerStatus{waiting("CrashLoopBackOff")},
			ContainerStatuses:     []v1.ContainerStatus{waiting("CrashLoopBackOff"), waiting("ImagePullBackOff"), {}},
		}
	}
	check("4")
	kubelet.podWorkers.(*fakePodWorkers).terminationRequested = map[types.UID]bool{"2": true}
	check("2")
}
