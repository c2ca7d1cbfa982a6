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
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A pod is synced again at the exact end of its back-off. Another error is retried
// as before.
func TestCompleteWorkInBackOff(t *testing.T) {
	const period, resync = 10 * time.Second, 60 * time.Second
	now := time.Unix(1000, 0)
	waits := func(d time.Duration) error {
		return restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, now.Add(d))
	}
	for name, tc := range map[string]struct {
		err         error
		least, most time.Duration
	}{
		"back-off":                          {waits(time.Second), time.Second, time.Second},
		"back-off that is over":             {waits(-time.Second), 0, 0},
		"longer than the resync interval":   {waits(300 * time.Second), resync, resync},
		"another error":                     {errors.New("failed"), period, 15 * time.Second},
		"no error":                          {nil, resync, 90 * time.Second},
		"after the retry of another error":  {errors.Join(waits(50*time.Second), errors.New("failed")), period, 15 * time.Second},
		"before the retry of another error": {errors.Join(waits(time.Second), errors.New("failed")), time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			p := podWorkersForTest(tCtx.Logger())
			p.clock = clocktesting.NewFakePassiveClock(now)
			p.resyncInterval, p.backOffPeriod = resync, period
			p.completeWorkForTest(tCtx.Logger(), false, tc.err)
			items := p.workQueue.(*fakeQueue).Items()
			require.Len(t, items, 1)
			assert.GreaterOrEqual(t, items[0].Delay, tc.least)
			assert.LessOrEqual(t, items[0].Delay, tc.most)
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
