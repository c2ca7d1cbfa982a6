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
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// phases are a status manager that knows the phase of one pod.
type phases struct {
	status.Manager
	phase v1.PodPhase
}

func (p *phases) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	return v1.PodStatus{Phase: p.phase}, p.phase != ""
}

// A pod that has exceeded its limit ends, and no other pod. It is forgotten when its status is
// Failed: a static pod may come back with its UID.
func TestRestartLimit(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	statuses := &phases{phase: v1.PodRunning}
	limits, b := &asked.Limits{}, backoff.NewBackOff(time.Second, time.Minute)
	handler := restartLimit{&Kubelet{statusManager: statuses, reasonCache: NewReasonCache()}, limits}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1", Annotations: map[string]string{asked.MaxRestartsAnnotation: "0"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
	handler.kl.reasonCache.add("u1", "c", errors.New("CrashLoopBackOff"), "")
	b.Decide("key", now, now)
	assert.Equal(t, lifecycle.ShouldEvictResponse{}, handler.ShouldEvict(pod))
	_, waits := handler.kl.reasonCache.Get("u1", "c")
	assert.True(t, waits)

	assert.True(t, limits.Exceed(nil, pod, "c", b, "key", false, now))
	ends := lifecycle.ShouldEvictResponse{
		Evict: true, Reason: "RestartLimitExceeded",
		Message: "Container c was restarted 0 times in a row, and annotation kubelet-backoff.github.io/max-restarts allows 0",
	}
	for _, phase := range []v1.PodPhase{"", v1.PodRunning, v1.PodFailed} {
		statuses.phase = phase
		assert.Equal(t, ends, handler.ShouldEvict(pod), phase)
	}
	_, waits = handler.kl.reasonCache.Get("u1", "c")
	assert.False(t, waits, "the status would not show how the container exited")
	assert.Equal(t, lifecycle.ShouldEvictResponse{}, handler.ShouldEvict(pod))
}
