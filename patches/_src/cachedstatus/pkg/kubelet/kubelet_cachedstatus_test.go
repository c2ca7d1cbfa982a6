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

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// After a sync that stopped containers for a restart of the pod, the statuses must be
// read again. While the pod waits they need not.
func TestRestartOfPodIsNotWaiting(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.again()
	r.stopped = nil
	r.exit("s", 88)
	err := r.sync()
	require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
	require.NotEmpty(t, r.stopped)
	require.False(t, kubecontainer.IsWaiting(err))
	err = r.sync()
	require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
	require.True(t, kubecontainer.IsWaiting(err))
	r.kubelet.containerManager = withoutCgroups{r.kubelet.containerManager, errors.New("no cgroup")}
	err = r.sync()
	require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
	require.False(t, kubecontainer.IsWaiting(err), "it failed before it got to the back-off")
}

// Containers that run without the pod's cgroups are stopped before the rest waits.
func TestStopWithoutCgroupsIsNotWaiting(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.kubelet.containerManager = withoutCgroups{r.kubelet.containerManager, nil}
	waits := kubecontainer.NewSyncResult(kubecontainer.StartContainer, "y")
	waits.Fail(restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, time.Now()), "back-off")
	r.result.SyncResults = []*kubecontainer.SyncResult{waits}
	err := r.sync()
	require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
	require.False(t, kubecontainer.IsWaiting(err), "the statuses have to be read again")
}
