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

package kuberuntime

import (
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// SyncPod and the pod's status take the first status with a container's name. That
// must be the newest instance, even if the clock was ahead when an older one was
// created.
func TestContainerStatusesAfterClockStep(t *testing.T) {
	now := time.Now()
	ahead := &kubecontainer.Status{Name: "main", RestartCount: 1, CreatedAt: now.Add(time.Hour), State: kubecontainer.ContainerStateExited}
	later := &kubecontainer.Status{Name: "main", RestartCount: 2, CreatedAt: now, State: kubecontainer.ContainerStateRunning}
	statuses := []*kubecontainer.Status{ahead, later}
	sort.Sort(containerStatusByCreated(statuses))
	require.Same(t, later, (&kubecontainer.PodStatus{ContainerStatuses: statuses}).FindContainerStatusByName("main"))
}

// Garbage collection keeps the newest instances of a container.
func TestContainerGCAfterClockStep(t *testing.T) {
	now := time.Now()
	type instance struct {
		created time.Time
		running bool
	}
	for name, test := range map[string]struct {
		instances []instance
		minAge    time.Duration
		// left are the attempts that are left. One that does not run is kept.
		left []string
	}{
		"no step": {
			instances: []instance{{created: now.Add(-3 * time.Hour)}, {created: now.Add(-2 * time.Hour)}, {created: now.Add(-time.Hour)}},
			left:      []string{"2"},
		},
		"an older one is from the future": {
			instances: []instance{{created: now.Add(-time.Hour)}, {created: now.Add(time.Hour)}, {created: now.Add(-time.Minute)}},
			left:      []string{"2"},
		},
		"that time has passed": {
			instances: []instance{{created: now.Add(-time.Hour)}, {created: now.Add(-time.Minute)}, {created: now.Add(-time.Hour / 2)}},
			left:      []string{"2"},
		},
		"the newest one runs": {
			instances: []instance{{created: now.Add(time.Hour)}, {created: now.Add(-2 * time.Hour)}, {created: now.Add(-time.Hour), running: true}},
			left:      []string{"1", "2"},
		},
		"the newest one has no time": {
			instances: []instance{{created: now.Add(-2 * time.Hour)}, {created: now.Add(-time.Hour)}, {created: time.Unix(0, 0)}},
			left:      []string{"1"},
		},
		"the newest one has no time, and the others are young": {
			instances: []instance{{created: now.Add(-2 * time.Minute)}, {created: now.Add(-time.Minute)}, {created: time.Unix(0, 0)}},
			minAge:    time.Hour,
			left:      []string{"0", "1", "2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			runtime, _, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(10))
			require.NoError(t, err)
			var containers []*apitest.FakeContainer
			for attempt, i := range test.instances {
				state := runtimeapi.ContainerState_CONTAINER_EXITED
				if i.running {
					state = runtimeapi.ContainerState_CONTAINER_RUNNING
				}
				containers = append(containers, &apitest.FakeContainer{ContainerStatus: runtimeapi.ContainerStatus{
					Id: strconv.Itoa(attempt), Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: uint32(attempt)},
					State: state, CreatedAt: i.created.UnixNano(),
					Labels: map[string]string{"io.kubernetes.pod.uid": "12345678", "io.kubernetes.container.name": "main"},
				}})
			}
			runtime.SetFakeContainers(containers)
			require.NoError(t, m.containerGC.evictContainers(tCtx, kubecontainer.GCPolicy{MinAge: test.minAge, MaxPerPodContainer: 1, MaxContainers: -1}, false, false))
			var left []string
			for id := range runtime.Containers {
				left = append(left, id)
			}
			require.ElementsMatch(t, test.left, left)
		})
	}
}
