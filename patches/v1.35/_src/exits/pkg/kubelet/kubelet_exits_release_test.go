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
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

// The test helpers in this file depend on the Kubernetes release.

type plegForTest struct {
	*pleg.GenericPLEG
}

func newPLEGForTest(runtime kubecontainer.Runtime, events chan *pleg.PodLifecycleEvent, cache kubecontainer.Cache) plegForTest {
	duration := &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: time.Minute}
	return plegForTest{pleg.NewGenericPLEG(klog.New(nil), runtime, events, duration, cache, clock.RealClock{}).(*pleg.GenericPLEG)}
}

func (p plegForTest) relist(context.Context) { p.Relist() }

func (r *exitsRuntime) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) {
	pod := &kubecontainer.Pod{ID: r.uid}
	r.addContainers(pod)
	return []*kubecontainer.Pod{pod}, nil
}

func (r *exitsRuntime) GetPodStatus(context.Context, types.UID, string, string) (*kubecontainer.PodStatus, error) {
	return r.statusOf(func(kubecontainer.ContainerID) bool { return true }), nil
}
