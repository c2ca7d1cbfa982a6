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

package images

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// timedManager adds the end of the back-off to ErrImagePullBackOff.
type timedManager struct {
	ImageManager
	backOff *flowcontrol.Backoff
}

// WithBackOffTime wraps m, which uses backOff. The error ErrImagePullBackOff then
// holds the end of the back-off, so that the pod is also synced at that time. With
// the gate KubeletStrictCrashLoopBackOff off, the error is upstream's.
func WithBackOffTime(m ImageManager, backOff *flowcontrol.Backoff) ImageManager {
	return timedManager{m, backOff}
}

func (m timedManager) EnsureImageExists(ctx context.Context, objRef *v1.ObjectReference, pod *v1.Pod, requestedImage string, pullSecrets []v1.Secret, podSandboxConfig *runtimeapi.PodSandboxConfig, podRuntimeHandler string, pullPolicy v1.PullPolicy) (string, string, error) {
	imageRef, message, err := m.ImageManager.EnsureImageExists(ctx, objRef, pod, requestedImage, pullSecrets, podSandboxConfig, podRuntimeHandler, pullPolicy)
	if !errors.Is(err, ErrImagePullBackOff) || !utilfeature.DefaultFeatureGate.Enabled(features.KubeletStrictCrashLoopBackOff) {
		return imageRef, message, err
	}
	end := m.end(fmt.Sprintf("%s_%s", pod.UID, requestedImage), m.backOff.Clock.Now())
	return imageRef, message, pullBackOffError{err, restart.NewBackoffError(err, end)}
}

// end returns the time at which the back-off of a key ends, in whole milliseconds after
// now. client-go does not store that time, but it answers for any time.
func (m timedManager) end(key string, now time.Time) time.Time {
	after := func(i int) time.Time { return now.Add(time.Duration(i) * time.Millisecond) }
	return after(sort.Search(int(m.backOff.Get(key).Milliseconds())+1, func(i int) bool {
		return !m.backOff.IsInBackOffSinceUpdate(key, after(i))
	}))
}

// pullBackOffError is an error that is over at a known time and also an ordinary
// error. So the pod is synced at that time, and before it as often as after any other
// error: the image may come by another way than a pull. Such a sync looks for the
// image on the node and does not pull it.
type pullBackOffError struct {
	error
	over *restart.BackoffError
}

func (e pullBackOffError) Unwrap() []error { return []error{e.error, e.over} }
