//go:build go1.25

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
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
)

// exitsRuntime has a pod whose containers end at any time. Reading from it takes
// time, and so do starts.
type exitsRuntime struct {
	*containertest.FakeRuntime
	t      *testing.T
	uid    types.UID
	random *rand.Rand
	// names are the containers, and each instance lives for less than lives.
	names []string
	lives time.Duration

	lock      sync.Mutex
	instances []*kubecontainer.Status
	starts    int
	// ended, if not nil, is called when a container has ended.
	ended func()
	// late has the times between the ends of containers and their restarts.
	late []time.Duration
}

// chance returns a random number below n.
func (r *exitsRuntime) chance(n int64) int64 {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.random.Int63n(n)
}

// doze sleeps for a random time below d.
func (r *exitsRuntime) doze(d time.Duration) { time.Sleep(time.Duration(r.chance(int64(d)))) }

func (r *exitsRuntime) newest(name string) *kubecontainer.Status {
	for _, s := range slices.Backward(r.instances) {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// addContainers adds the known containers to pod.
func (r *exitsRuntime) addContainers(pod *kubecontainer.Pod) {
	r.doze(3 * time.Millisecond)
	r.lock.Lock()
	for _, s := range r.instances {
		pod.Containers = append(pod.Containers, &kubecontainer.Container{ID: s.ID, Name: s.Name, State: s.State})
	}
	r.lock.Unlock()
	r.doze(3 * time.Millisecond)
}

// statusOf returns the status with the instances for which asked returns true.
func (r *exitsRuntime) statusOf(asked func(kubecontainer.ContainerID) bool) *kubecontainer.PodStatus {
	r.doze(3 * time.Millisecond)
	r.lock.Lock()
	status := &kubecontainer.PodStatus{ID: r.uid}
	for _, s := range slices.Backward(r.instances) {
		if asked(s.ID) {
			copied := *s
			status.ContainerStatuses = append(status.ContainerStatuses, &copied)
		}
	}
	r.lock.Unlock()
	r.doze(3 * time.Millisecond)
	return status
}

// sync starts the containers that have ended according to the status.
func (r *exitsRuntime) sync(podStatus *kubecontainer.PodStatus) {
	for _, name := range r.names {
		s := podStatus.FindContainerStatusByName(name)
		if s != nil && s.State != kubecontainer.ContainerStateExited {
			continue
		}
		r.doze(20 * time.Millisecond)
		r.lock.Lock()
		now := r.newest(name)
		if now != nil {
			assert.Equal(r.t, kubecontainer.ContainerStateExited, now.State, "%s runs and is started", name)
			r.late = append(r.late, time.Since(now.FinishedAt))
		}
		started := &kubecontainer.Status{
			ID: kubecontainer.ContainerID{Type: "test", ID: name + time.Now().String()}, Name: name,
			State: kubecontainer.ContainerStateRunning, CreatedAt: time.Now(), StartedAt: time.Now(),
		}
		r.starts++
		r.instances = append(r.instances, started)
		if len(r.instances) > 6 {
			r.instances = r.instances[1:]
		}
		lives := time.Duration(r.random.Int63n(int64(r.lives)))
		r.lock.Unlock()
		time.AfterFunc(lives, func() {
			r.lock.Lock()
			started.State, started.FinishedAt = kubecontainer.ContainerStateExited, time.Now()
			r.lock.Unlock()
			if r.ended != nil {
				r.ended()
			}
		})
		r.doze(20 * time.Millisecond)
	}
}
