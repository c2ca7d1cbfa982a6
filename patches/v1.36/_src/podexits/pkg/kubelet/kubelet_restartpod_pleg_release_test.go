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

	"k8s.io/apimachinery/pkg/types"

	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

// The test helpers in this file depend on the Kubernetes release.

func (p plegForTest) start(context.Context)   { p.Start() }
func (p plegForTest) relistPod(uid types.UID) { p.RequestRelist(uid) }

type relister struct {
	pleg.PodLifecycleEventGenerator
	relists chan types.UID
}

func (r relister) RequestRelist(uid types.UID) { r.relists <- uid }
