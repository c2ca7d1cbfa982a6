// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// CSIName is the name of the node's CSI driver.
const CSIName = "volumes.kubelet-backoff.test"

// CSIDriver is a CSI driver for volumes that live as long as their pod, and for persistent
// volumes, which are staged. Each of them is a folder of the node, which the driver mounts
// for the pod. It runs in this process, so that a kubelet which ends does not end it, and
// has the node's mounts.
type CSIDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	csiCalls

	server *grpc.Server
	folder string
}

// csiCalls has the calls that a CSI driver got for volumes.
type csiCalls struct {
	mu   sync.Mutex
	made []string
}

// Calls returns the names of the calls, each with its error if it failed.
func (c *csiCalls) Calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// newServer returns a server that makes one call after the other.
func (c *csiCalls) newServer() *grpc.Server {
	return grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		resp, err := handler(ctx, req)
		if _, volume := req.(interface{ GetVolumeId() string }); volume {
			call := path.Base(info.FullMethod)
			if err != nil {
				call += ": " + err.Error()
			}
			c.made = append(c.made, call)
		}
		return resp, err
	}))
}

// StartCSI starts the driver, and offers it to the kubelet.
func (n *Node) StartCSI() (*CSIDriver, error) {
	d := &CSIDriver{folder: n.Path("csi")}
	d.server = d.newServer()
	csi.RegisterIdentityServer(d.server, d)
	csi.RegisterNodeServer(d.server, d)
	return d, n.registerCSI(d.server, CSIName)
}

// Stop stops the driver, and removes its socket.
func (d *CSIDriver) Stop() { d.server.Stop() }

// registration offers a CSI driver to the kubelet.
type registration struct {
	registerapi.UnimplementedRegistrationServer
	name, socket string
}

// registerCSI makes a CSI driver listen where the kubelet looks for drivers, and offers it.
func (n *Node) registerCSI(server *grpc.Server, name string) error {
	socket := n.Path("kubelet", "plugins_registry", "csi.sock")
	registerapi.RegisterRegistrationServer(server, registration{name: name, socket: socket})
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(l) }()
	return nil
}

// GetInfo tells the kubelet what it has found.
func (r registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: r.name, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus ignores the result: without a driver, pods would wait for their
// volumes.
func (registration) NotifyRegistrationStatus(context.Context, *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}

// CSIObject returns the object in the API of the driver with a name.
func CSIObject(name string) *storagev1.CSIDriver {
	no := false
	return &storagev1.CSIDriver{
		TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired:       &no,
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent},
		},
	}
}

// NodeGetInfo returns the ID of the node.
func (d *CSIDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: Name}, nil
}

// NodeGetCapabilities returns that persistent volumes are staged.
func (d *CSIDriver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	stage := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{Rpc: stage}}}}, nil
}

// NodeStageVolume mounts the folder of a persistent volume.
func (d *CSIDriver) NodeStageVolume(_ context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, mountOnce(d.folderOf(req.GetVolumeId()), req.GetStagingTargetPath())
}

// NodePublishVolume mounts the volume's folder, or the place where it is staged, for a pod.
func (d *CSIDriver) NodePublishVolume(_ context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, mountOnce(cmp.Or(req.GetStagingTargetPath(), d.folderOf(req.GetVolumeId())), req.GetTargetPath())
}

// NodeUnpublishVolume removes the mount, and the volume unless it is persistent.
func (d *CSIDriver) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	err := unmount(req.GetTargetPath())
	// The kubelet gives such names to volumes that end with their pod.
	if err == nil && strings.HasPrefix(req.GetVolumeId(), "csi-") {
		err = os.RemoveAll(d.folderOf(req.GetVolumeId()))
	}
	return &csi.NodeUnpublishVolumeResponse{}, err
}

// NodeUnstageVolume removes the mount of NodeStageVolume. The volume keeps its data.
func (d *CSIDriver) NodeUnstageVolume(_ context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, unmount(req.GetStagingTargetPath())
}

func (d *CSIDriver) folderOf(volume string) string { return filepath.Join(d.folder, volume) }

// mountOnce mounts folder at target, unless it is mounted already: a kubelet that has
// started asks for it again.
func mountOnce(folder, target string) error {
	all, err := mounts()
	if err != nil || slices.ContainsFunc(all, func(m mount) bool { return m.point == target }) {
		return err
	}
	if err := errors.Join(os.MkdirAll(folder, 0o777), os.MkdirAll(target, 0o750)); err != nil {
		return err
	}
	return bind(folder, target)
}

// unmount removes target, which may not be mounted, because each call may be repeated.
func unmount(target string) error {
	_ = syscall.Unmount(target, 0)
	// Not the content: if target is still mounted, that is the volume's data.
	if err := os.Remove(target); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
