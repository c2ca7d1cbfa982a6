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
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/clock"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// mustSync waits for a sync, and fails the test if none comes.
func mustSync(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the worker does not sync the pod: it waits for a newer status")
	}
}

// lagging is a runtime with two containers. The kubelet sees them through a
// PLEG that lags behind.
type lagging struct {
	t       *testing.T
	lock    sync.Mutex
	random  *rand.Rand
	running map[string]bool
	starts  int
	waits   int
}

func (l *lagging) status(uid types.UID) *kubecontainer.PodStatus {
	s := &kubecontainer.PodStatus{ID: uid}
	for name, running := range l.running {
		state := kubecontainer.ContainerStateExited
		if running {
			state = kubecontainer.ContainerStateRunning
		}
		s.ContainerStatuses = append(s.ContainerStatuses, &kubecontainer.Status{Name: name, State: state})
	}
	return s
}

// sync starts the containers that do not run according to the status, or
// reports that they wait.
func (l *lagging) sync(podStatus *kubecontainer.PodStatus) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	result := kubecontainer.PodSyncResult{}
	result.AddSyncResult(kubecontainer.NewSyncResult(kubecontainer.ConfigPodSandbox, podStatus.ID))
	for _, c := range podStatus.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateRunning {
			continue
		}
		r := kubecontainer.NewSyncResult(kubecontainer.StartContainer, c.Name)
		result.AddSyncResult(r)
		switch l.random.Intn(4) {
		case 0, 1:
			r.Fail(restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, time.Now()), "waits")
			l.waits++
			continue
		case 2:
			// The container started, but a later step failed.
			r.Fail(kubecontainer.ErrRunContainer, "failed")
		}
		if l.running[c.Name] {
			l.t.Errorf("start %d: %s is running already", l.starts, c.Name)
		}
		l.running[c.Name] = true
		l.starts++
	}
	return result.Error()
}

// After a sync that changed nothing, the worker may use the state from before
// it. After any other sync it must not, or it starts a container twice.
func TestWorkerDoesNotStartTwice(t *testing.T) {
	tCtx := ktesting.Init(t)
	const syncs, uid = 2000, types.UID("pod")
	l := &lagging{t: t, random: rand.New(rand.NewSource(1)), running: map[string]bool{"a": false, "b": false}}
	cache := kubecontainer.NewCache()
	cache.Set(uid, l.status(uid), nil, time.Now())
	done := make(chan struct{})
	p := podWorkersForTest(tCtx.Logger())
	p.clock = clock.RealClock{}
	p.podCache = cache
	p.podSyncer = syncerForTest(func(podStatus *kubecontainer.PodStatus) error {
		err := l.sync(podStatus)
		done <- struct{}{}
		return err
	}, nil)

	// The PLEG: containers exit, and their observed state is published a random
	// number of checks later.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		type look struct {
			at     time.Time
			status *kubecontainer.PodStatus
		}
		var looks []look
		for {
			select {
			case <-stop:
				return
			default:
			}
			l.lock.Lock()
			for name := range l.running {
				if l.random.Intn(3) == 0 {
					l.running[name] = false
				}
			}
			looks = append(looks, look{time.Now(), l.status(uid)})
			publish := l.random.Intn(2) == 0
			l.lock.Unlock()
			if publish || len(looks) > 5 {
				cache.Set(uid, looks[0].status, nil, looks[0].at)
				cache.UpdateTime(looks[0].at)
				looks = looks[1:]
			}
		}
	}()
	pod := newNamedPod(string(uid), "ns", "pod", false)
	for range syncs {
		p.updatePodForTest(tCtx, pod)
		mustSync(t, done)
	}
	close(stop)
	<-stopped
	if l.starts < syncs/10 || l.waits < syncs/10 {
		t.Errorf("only %d starts and %d waits", l.starts, l.waits)
	}
	t.Logf("%d starts, %d waits", l.starts, l.waits)
}

// After a sync that changed nothing, the worker does not wait for the PLEG.
func TestWorkerUsesWhatItKnowsWhileWaiting(t *testing.T) {
	tCtx := ktesting.Init(t)
	const uid = types.UID("pod")
	cache := kubecontainer.NewCache()
	cache.Set(uid, &kubecontainer.PodStatus{ID: uid}, nil, time.Now())
	done := make(chan struct{})
	p := podWorkersForTest(tCtx.Logger())
	p.clock = clock.RealClock{}
	p.podCache = cache
	p.podSyncer = syncerForTest(func(*kubecontainer.PodStatus) error {
		result := kubecontainer.PodSyncResult{SyncResults: []*kubecontainer.SyncResult{{
			Action: kubecontainer.StartContainer,
			Error:  restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, time.Now()),
		}}}
		done <- struct{}{}
		return result.Error()
	}, nil)
	pod := newNamedPod(string(uid), "ns", "pod", false)
	// Nothing is published again.
	for range 3 {
		p.updatePodForTest(tCtx, pod)
		mustSync(t, done)
	}
}
