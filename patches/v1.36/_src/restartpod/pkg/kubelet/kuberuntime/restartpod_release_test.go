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

package kuberuntime

import (
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

// startsOfRelease returns what computePodActions of this release starts for the Start of
// a Machine's plan. Before v1.37, computePodActions treats an exited regular container as
// one from another sandbox. If no regular container runs, and the last init container is
// a sidecar that does not run either, it starts the sidecars first and the others in a
// later sync. It does so even if the pod is done, but then no sync calls it.
func startsOfRelease(containers []restartpod.Container, plan *restartpod.Plan) []int {
	exited := false
	var last *restartpod.Container
	var sidecars []int
	for i := range containers {
		c := &containers[i]
		present := c.Status != nil && (plan.Old == nil || !plan.Old[i])
		runs := present && c.Status.State == restart.ContainerStateRunning
		switch c.Kind {
		case restartpod.KindRegular:
			if runs || present && c.Status.State == restart.ContainerStateCreated {
				return plan.Start
			}
			exited = exited || present
		case restartpod.KindSidecar:
			if !runs {
				sidecars = append(sidecars, i)
			}
			last = c
		case restartpod.KindInit:
			last = c
		}
	}
	if exited && last != nil && last.Kind == restartpod.KindSidecar && last.Status.State == restart.ContainerStateExited {
		return sidecars
	}
	return plan.Start
}
