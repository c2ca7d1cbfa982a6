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
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	klogtesting "k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
)

// A pod is requeued for the exact end of its back-off, which does not postpone the
// retry of another error. Another error is retried as before.
func TestCompleteWorkAtTheEndOfBackOff(t *testing.T) {
	const period, resync = 10 * time.Second, 60 * time.Second
	now := time.Unix(1000, 0)
	waits := func(d time.Duration) error {
		return restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, now.Add(d))
	}
	other := errors.New("CreateContainerConfigError")
	tests := []struct {
		name        string
		err         error
		least, most time.Duration
	}{
		{"short", waits(time.Second), time.Second, time.Second},
		{"long", waits(50 * time.Second), 50 * time.Second, 50 * time.Second},
		{"longer than the resync interval", waits(300 * time.Second), resync, resync},
		{"over", waits(-time.Second), 0, 0},
		{"beside another error", utilerrors.NewAggregate([]error{waits(300 * time.Second), other}), period, period * 3 / 2},
		{"sooner than the retry of another error", utilerrors.NewAggregate([]error{other, waits(time.Second)}), time.Second, time.Second},
		{"just after the retry of another error", utilerrors.NewAggregate([]error{other, waits(10*time.Second + 1)}), period, period + 1},
		{"joined with another error", errors.Join(waits(50*time.Second), other), period, period * 3 / 2},
		{"another error", other, period, period * 3 / 2},
		{"no error", nil, resync, resync * 3 / 2},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			// If there is jitter, it shows in some of these rounds.
			for range 50 {
				p := podWorkersForTest(tCtx.Logger())
				p.clock = clocktesting.NewFakePassiveClock(now)
				p.resyncInterval, p.backOffPeriod = resync, period
				p.completeWorkForTest(tCtx.Logger(), false, tc.err)
				items := p.workQueue.(*fakeQueue).Items()
				require.Len(t, items, 1)
				require.GreaterOrEqual(t, items[0].Delay, tc.least)
				require.LessOrEqual(t, items[0].Delay, tc.most)
			}
		})
	}
}

// The end of a sync that only found a back-off is not logged as an error.
func TestWorkerLogsNoErrorInBackOff(t *testing.T) {
	for name, tc := range map[string]struct {
		other  error
		logged bool
	}{"back-off": {}, "back-off and an error": {errors.New("failed"), true}} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			logger := klogtesting.NewLogger(t, klogtesting.NewConfig(klogtesting.BufferLogs(true)))
			const uid = types.UID("pod")
			cache := kubecontainer.NewCache()
			cache.Set(uid, &kubecontainer.PodStatus{ID: uid}, nil, time.Now())
			p := podWorkersForTest(tCtx.Logger())
			p.clock = clock.RealClock{}
			p.podCache = cache
			done := make(chan struct{})
			p.podSyncer = syncerForTest(func(*kubecontainer.PodStatus) error {
				done <- struct{}{}
				return errors.Join(restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, time.Now()), tc.other)
			}, nil)
			pod := newNamedPod(string(uid), "ns", "pod", false)
			// The log of a sync is complete when the next one runs.
			for range 2 {
				p.updatePodForTest(klog.NewContext(tCtx, logger), pod)
				<-done
				cache.UpdateTime(time.Now().Add(time.Hour))
			}
			log := logger.GetSink().(klogtesting.Underlier).GetBuffer().String()
			if log == "" {
				t.Skip("the pod workers of this release do not log to the logger of the context")
			}
			require.Equal(t, tc.logged, strings.Contains(log, "Error syncing pod"), log)
		})
	}
}

// A resync interval shorter than the ordinary retry limits the delay, also in
// combination with a back-off.
func TestCompleteWorkWithShortResyncInterval(t *testing.T) {
	tCtx := ktesting.Init(t)
	p := podWorkersForTest(tCtx.Logger())
	p.resyncInterval, p.backOffPeriod = 2*time.Second, 10*time.Second
	p.completeWorkForTest(tCtx.Logger(), false, errors.Join(errors.New("failed"),
		restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, time.Now().Add(time.Hour))))
	assert.LessOrEqual(t, p.workQueue.(*fakeQueue).Items()[0].Delay, 3*time.Second)
}

// The sync loop is woken only when a back-off ends.
func TestWakingQueue(t *testing.T) {
	tCtx := ktesting.Init(t)
	p := podWorkersForTest(tCtx.Logger())
	now := time.Now()
	p.clock = clocktesting.NewFakePassiveClock(now)
	var ticker queue.SyncTicker
	ticks, stop := ticker.Every(time.Hour)
	defer stop()
	p.workQueue = wakingQueue{&fakeQueue{}, &ticker}
	p.completeWorkForTest(tCtx.Logger(), true, nil)
	p.completeWorkForTest(tCtx.Logger(), false, errors.Join(errors.New("failed"),
		restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, now.Add(time.Hour))))
	assert.Empty(t, ticks)
	p.completeWorkForTest(tCtx.Logger(), false, restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, now))
	<-ticks
}
