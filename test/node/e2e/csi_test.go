// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// csiDisruptions have a pod with a CSI volume. Restarts must not publish it again.
var csiDisruptions = []scenario{
	{"CSIVolumeIsKept", func(t *testing.T, e *e2e) {
		driver := e.startCSI(t)
		trigger := "wait=go exit=42"
		main := triggering(container("main", trigger, trigger, "wait=go exit=3", trigger, ""))
		main.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		p := e.newPod(t)
		p.csi = true
		p.create(withGrace(60, podSpec([]v1.Container{sidecar("sidecar1", "")}, main, preStop(container("other", "linger=2s"), 2*time.Second))))
		before := p.running()
		for range 2 {
			p.signal("go")
			before = p.restarted(restart{before: before, cause: "main"})
		}
		p.signal("go")
		p.event("main", 4, "start")
		before = p.runsAgain("main", 3)
		assert.Equal(t, []string{"NodePublishVolume"}, driver.Calls(string(p.uid)), "calls of the CSI driver in three restarts")

		p.signal("go")
		p.event("other", 3, "term")
		crashKubelet(t, e)
		p.restarted(restart{before: before, cause: "main"})
		p.assertStarts(map[string]int{"main": 5, "other": 4, "sidecar1": 4})
		// A new kubelet publishes the volumes of running pods once more, and only then knows them.
		published := []string{"NodePublishVolume", "NodePublishVolume"}
		assert.Equal(t, published, driver.Calls(string(p.uid)), "calls of the CSI driver by two kubelets")
		p.deletedForGood()
		assert.Equal(t, append(published, "NodeUnpublishVolume"), driver.Calls(string(p.uid)), "calls of the CSI driver for a deleted pod")
	}},
}

// startCSI starts the node's CSI driver for a scenario.
func (e *e2e) startCSI(t *testing.T) *harness.CSIDriver {
	t.Helper()
	driver, err := e.StartCSI()
	require.NoError(t, err)
	t.Cleanup(driver.Stop)
	drivers := e.kube.StorageV1().CSIDrivers()
	_, err = drivers.Create(e.ctx, driver.Object(), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, drivers.Delete(context.WithoutCancel(e.ctx), harness.CSIName, metav1.DeleteOptions{}))
	})
	return driver
}
