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
	"slices"

	v1 "k8s.io/api/core/v1"
)

// PodRestart is what the start of a pod's containers needs to know about the pod's
// restarts.
type PodRestart struct {
	// LastCounts has the restart counts of the instances that are left out. It is nil
	// unless the pod is being restarted.
	LastCounts map[string]int
	// Waits, if not nil, is the reason why no container of the pod starts yet, except
	// ephemeral ones. Message is the reason as text.
	Waits   *BackoffError
	Message string
	// BackOff, if not empty, is the pod's back-off as stored in the containers that
	// are started.
	BackOff string
	// Hold, if not nil, returns why a container must not start in this sync, or nil.
	Hold func(name string) *BackoffError
}

// InProgress reports whether the pod is being restarted. It may be called on nil.
func (r *PodRestart) InProgress() bool { return r != nil && r.LastCounts != nil }

// Wait returns why the container has to wait for its pod, or nil if it does not have
// to wait. It may be called on nil.
func (r *PodRestart) Wait(pod *v1.Pod, container *v1.Container) *BackoffError {
	if r == nil || slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool {
		return c.Name == container.Name
	}) {
		return nil
	}
	if r.Waits == nil && r.Hold != nil {
		return r.Hold(container.Name)
	}
	return r.Waits
}
