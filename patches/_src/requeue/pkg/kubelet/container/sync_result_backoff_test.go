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

	"github.com/stretchr/testify/require"

	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// The error of a sync has the time at which its first back-off ends.
func TestPodSyncResultErrorHasBackOff(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var result PodSyncResult
	for name, err := range map[string]error{
		"a": NewBackoffError(ErrCrashLoopBackOff, now.Add(20*time.Second)),
		"b": NewBackoffError(ErrCrashLoopBackOff, now.Add(10*time.Second)),
		"c": errors.New("failed"),
	} {
		r := NewSyncResult(StartContainer, name)
		r.Fail(err, "message")
		result.AddSyncResult(r)
	}
	at, ok := restart.MinBackoffExpiration(result.Error())
	require.True(t, ok)
	require.Equal(t, now.Add(10*time.Second), at)
	require.ErrorIs(t, result.Error(), ErrCrashLoopBackOff)
}
