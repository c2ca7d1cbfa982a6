// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// firstStartDisruptions run with more crashing pods than the kubelet may restart at once.
var firstStartDisruptions = []scenario{
	{"FirstStartsHang", func(t *testing.T, e *e2e) {
		crashing := e.crashingAtOnce(t)
		// One pod waits for its volumes, another for its image.
		volume, image := alwaysSpec(nil, container("main", "")), alwaysSpec(nil, container("main", ""))
		volume.Volumes = []v1.Volume{{Name: "absent", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "absent"},
		}}}}
		// The kubelet waits only for volumes that a container mounts.
		volume.Containers[0].VolumeMounts = append(volume.Containers[0].VolumeMounts, v1.VolumeMount{Name: "absent", MountPath: "/absent"})
		image.Containers[0].Image, image.Containers[0].ImagePullPolicy = "node.invalid/absent", v1.PullAlways
		hanging := []*pod{e.create(t, volume, "volume"), e.create(t, image, "image")}
		e.create(t, podSpec(nil, container("main", "")), "healthy").running()
		allGoOn(crashing)
		for _, p := range hanging {
			assert.Zero(t, p.starts("main"), "starts of %s", p.name)
		}
	}},
	{"DeletedWhileStartsWait", func(t *testing.T, e *e2e) {
		crashing := e.crashingAtOnce(t)
		for _, p := range crashing[:5] {
			// A start that has reached the runtime still happens.
			p.deletedWithStarts(1)
		}
		allGoOn(crashing[5:])
	}},
}

// crashingAtOnce restarts the kubelet with a maximum of 1 s, and creates pods that crash
// whenever they run.
func (e *e2e) crashingAtOnce(t *testing.T) (pods []*pod) {
	e.useCurve(t, harness.Curve{Reduced: true, Maximum: time.Second})
	for i := range 8 * runtime.NumCPU() {
		pods = append(pods, e.create(t, alwaysSpec(nil, container("main", "exit=1")), fmt.Sprint("crashing", i)))
	}
	for _, p := range pods {
		p.event("main", 3, "start")
	}
	return pods
}

// allGoOn waits until each of the pods has more restarts than any of them had when it
// was called.
func allGoOn(pods []*pod) {
	most := 0
	for _, p := range pods {
		most = max(most, p.starts("main"))
	}
	for _, p := range pods {
		p.event("main", most+2, "start")
	}
}
