// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// csiDisruptions have a pod with a CSI volume. Restarts must not stage or publish it again.
var csiDisruptions = []scenario{
	{"CSIVolumeIsKept", func(t *testing.T, e *e2e) {
		driver := e.startCSI(t)
		ephemeral := v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: harness.CSIName}}
		e.csiVolumeIsKept(t, driver.Calls, ephemeral, []string{"NodePublishVolume"}, []string{"NodeUnpublishVolume"})
	}},
	{"CSIClaimIsKept", func(t *testing.T, e *e2e) {
		driver := e.startCSI(t)
		claim := e.createClaim(t, harness.CSIName, "claim")
		e.csiVolumeIsKept(t, driver.Calls, claim, []string{"NodeStageVolume", "NodePublishVolume"}, []string{"NodeUnpublishVolume", "NodeUnstageVolume"})
		assert.FileExists(t, e.Path("csi", "claim", "main.5"), "the data of a volume without a pod")
	}},
	{"HostPathClaimIsKept", func(t *testing.T, e *e2e) {
		driver, err := e.StartHostPath()
		require.NoError(t, err)
		t.Cleanup(driver.Stop)
		e.createDriver(t, harness.HostPathName)
		handle, folder, err := e.HostPathVolume()
		require.NoError(t, err)
		claim := e.createClaim(t, harness.HostPathName, handle)
		e.csiVolumeIsKept(t, driver.Calls, claim, []string{"NodePublishVolume"}, []string{"NodeUnpublishVolume"})
		assert.FileExists(t, filepath.Join(folder, "main.5"), "the data of a volume without a pod")
	}},
}

// csiVolumeIsKept restarts a pod with a volume for which the kubelet makes the calls mount
// and unmount. The function calls returns those that the driver got.
func (e *e2e) csiVolumeIsKept(t *testing.T, calls func() []string, volume v1.VolumeSource, mount, unmount []string) {
	trigger := "wait=go exit=42"
	main := triggering(container("main", trigger, trigger, "wait=go exit=3", trigger, ""))
	main.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	p := e.newPod(t)
	p.data = volume
	// Also when the scenario fails, the driver has to unmount the volume.
	t.Cleanup(p.gone)
	p.create(withGrace(60, podSpec([]v1.Container{sidecar("sidecar1", "")}, main, preStop(container("other", "linger=2s"), 2*time.Second))))
	before := p.running()
	for range 2 {
		p.signal("go")
		before = p.restarted(restart{before: before, cause: "main"})
	}
	p.signal("go")
	p.event("main", 4, "start")
	before = p.runsAgain("main", 3)
	assert.Equal(t, mount, calls(), "calls of the CSI driver in three restarts")

	p.signal("go")
	p.event("other", 3, "term")
	crashKubelet(t, e)
	p.restarted(restart{before: before, cause: "main"})
	p.assertStarts(map[string]int{"main": 5, "other": 4, "sidecar1": 4})
	// A new kubelet mounts the volumes of running pods once more, and only then is sure of them.
	want := slices.Concat(mount, mount)
	assert.Equal(t, want, calls(), "calls of the CSI driver by two kubelets")
	p.deletedForGood()
	// The kubelet deletes the pod in the API before it unstages the volume.
	want = append(want, unmount...)
	require.NoError(t, harness.Await(e.ctx, "the end of the volume", patience, func(context.Context) error {
		if made := calls(); !slices.Equal(want, made) {
			return fmt.Errorf("the calls of the CSI driver are %q, not %q", made, want)
		}
		return nil
	}))
}

// createClaim creates a persistent volume of a CSI driver and a claim, both with the driver's
// name, and binds them: no controller does.
func (e *e2e) createClaim(t *testing.T, name, handle string) v1.VolumeSource {
	t.Helper()
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	claims, volumes := e.kube.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault), e.kube.CoreV1().PersistentVolumes()
	claim, err := claims.Create(e.ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: v1.VolumeResourceRequirements{Requests: size}, StorageClassName: ptr.To(""), VolumeName: name,
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = volumes.Create(e.ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: size,
			ClaimRef:               &v1.ObjectReference{Namespace: claim.Namespace, Name: name, UID: claim.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: name, VolumeHandle: handle}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	// With less than the volume has, the kubelet would try to expand it.
	claim.Status.Phase, claim.Status.Capacity = v1.ClaimBound, size
	_, err = claims.UpdateStatus(e.ctx, claim, metav1.UpdateOptions{})
	require.NoError(t, err)
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// startCSI starts the node's CSI driver for a scenario.
func (e *e2e) startCSI(t *testing.T) *harness.CSIDriver {
	t.Helper()
	driver, err := e.StartCSI()
	require.NoError(t, err)
	t.Cleanup(driver.Stop)
	e.createDriver(t, harness.CSIName)
	return driver
}

// createDriver creates a CSI driver's object for a scenario.
func (e *e2e) createDriver(t *testing.T, name string) {
	t.Helper()
	drivers := e.kube.StorageV1().CSIDrivers()
	_, err := drivers.Create(e.ctx, harness.CSIObject(name), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, drivers.Delete(context.WithoutCancel(e.ctx), name, metav1.DeleteOptions{}))
	})
}
