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
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/kubelet/restart"
)

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
