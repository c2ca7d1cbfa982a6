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

package container

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// in returns the error of a container that waits for so many seconds.
func in(seconds int) error {
	return restart.NewBackoffError(ErrCrashLoopBackOff, waitingSince.Add(time.Duration(seconds)*time.Second))
}

var waitingSince = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestWaiting(t *testing.T) {
	assert.NoError(t, Waiting(nil))
	assert.False(t, IsWaiting(nil))
	assert.False(t, IsWaiting(in(5)))
	err := fmt.Errorf("failed: %w", Waiting(in(5)))
	assert.True(t, IsWaiting(err))
	assert.False(t, IsWaiting(errors.Join(Waiting(in(5)), errors.New("failed"))))
	assert.False(t, IsWaiting(fmt.Errorf("failed: %w", utilerrors.NewAggregate([]error{Waiting(in(5)), errors.New("failed")}))))
	assert.ErrorIs(t, err, ErrCrashLoopBackOff)
	assert.EqualError(t, Waiting(in(5)), in(5).Error())
	assert.Equal(t, in(5), Changed(Waiting(in(5))))
	assert.Equal(t, in(5), Changed(Waiting(Waiting(in(5)))))
	assert.Equal(t, in(5), Changed(in(5)))
	assert.NoError(t, Changed(nil))
	delay, exact := restart.NextSync(Waiting(in(7)), 10*time.Second, time.Minute, waitingSince)
	assert.Equal(t, 7*time.Second, delay)
	assert.True(t, exact)
}

func TestChangedNothing(t *testing.T) {
	assert.True(t, ChangedNothing("StartContainer", fmt.Errorf("failed: %w", in(5))))
	assert.True(t, ChangedNothing("ConfigPodSandbox", nil))
	assert.False(t, ChangedNothing("ConfigPodSandbox", errors.New("failed")))
	assert.False(t, ChangedNothing("StartContainer", nil))
	assert.False(t, ChangedNothing("StartContainer", errors.New("failed")))
	assert.False(t, ChangedNothing("KillContainer", nil))
	assert.False(t, ChangedNothing("StartContainer", errors.Join(in(5), errors.New("failed"))))
	assert.False(t, ChangedNothing("StartContainer", restart.NewBackoffError(errors.New("RunContainerError"), waitingSince)), "a start that failed")
}

func TestPodSyncResultWaiting(t *testing.T) {
	waits := SyncResult{Action: StartContainer, Target: "a", Error: restart.NewBackoffError(ErrCrashLoopBackOff, time.Now())}
	config := SyncResult{Action: ConfigPodSandbox}
	tests := map[string]struct {
		result PodSyncResult
		want   bool
	}{
		"nothing to do":      {PodSyncResult{}, false},
		"one waits":          {PodSyncResult{SyncResults: []*SyncResult{&config, &waits}}, true},
		"two wait":           {PodSyncResult{SyncResults: []*SyncResult{&config, &waits, &waits}}, true},
		"another starts":     {PodSyncResult{SyncResults: []*SyncResult{&config, &waits, {Action: StartContainer}}}, false},
		"another is killed":  {PodSyncResult{SyncResults: []*SyncResult{{Action: KillContainer}, &config, &waits}}, false},
		"another fails":      {PodSyncResult{SyncResults: []*SyncResult{&config, {Action: StartContainer, Error: ErrRunContainer}, &waits}}, false},
		"a start failed":     {PodSyncResult{SyncResults: []*SyncResult{&config, &waits, {Action: StartContainer, Error: restart.NewBackoffError(ErrRunContainer, time.Now())}}}, false},
		"the sync fails":     {PodSyncResult{SyncResults: []*SyncResult{&waits}, SyncError: errors.New("failed")}, false},
		"a sandbox was made": {PodSyncResult{SyncResults: []*SyncResult{{Action: CreatePodSandbox}, &config, &waits}}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Run("gate off", func(t *testing.T) {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletCachedStatusInBackOff, false)
				if err := tc.result.Error(); IsWaiting(err) {
					t.Errorf("IsWaiting(%v) = true", err)
				}
			})
			err := tc.result.Error()
			if got := IsWaiting(err); got != tc.want {
				t.Errorf("IsWaiting(%v) = %t", err, got)
			}
			if tc.want && !errors.Is(err, ErrCrashLoopBackOff) {
				t.Errorf("%v hides ErrCrashLoopBackOff", err)
			}
		})
	}
}
