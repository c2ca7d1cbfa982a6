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

package metrics

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"k8s.io/kubernetes/pkg/kubelet/asked"
)

// An answer counts once, and no answer does not count.
func TestRestartAtMetrics(t *testing.T) {
	RegisterRestartAt()
	RegisterRestartAt()
	restartAtAnnotations.Reset()
	defer restartAtAnnotations.Reset()
	CountRestartAt(asked.Honored)
	CountRestartAt(asked.Refused)
	CountRestartAt(asked.Refused)
	CountRestartAt("")
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP kubelet_restart_at_annotations_total [ALPHA] Number of answers to restart-at annotations of waiting containers and pods: honored, refused because the time is less than ten seconds from another one of the pod, or invalid.
# TYPE kubelet_restart_at_annotations_total counter
kubelet_restart_at_annotations_total{outcome="honored"} 1
kubelet_restart_at_annotations_total{outcome="refused"} 2
`), "kubelet_restart_at_annotations_total"))
}
