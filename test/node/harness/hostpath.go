// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// HostPathName is the name of Kubernetes' hostpath CSI driver on the node.
const HostPathName = "csi-hostpath"

// hostPath is that driver.
var hostPath = pinned{name: "hostpath CSI driver", folder: "hostpath", programs: []string{"github.com/kubernetes-csi/drivers/app/hostpathplugin"}}

// HostPath is Kubernetes' hostpath CSI driver, which runs as a program. The harness passes
// the kubelet's calls on to it, to record them.
type HostPath struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	csiCalls

	program *Process
	conn    *grpc.ClientConn
	node    csi.NodeClient
	server  *grpc.Server
}

// StartHostPath starts the driver, and offers it to the kubelet.
func (n *Node) StartHostPath() (*HostPath, error) {
	socket := n.Path("hostpath.sock")
	// The program answers only after some time.
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	h := &HostPath{conn: conn, node: csi.NewNodeClient(conn)}
	h.server = h.newServer()
	h.program, err = n.Start("hostpath", filepath.Join(n.Spec.Bin, "hostpathplugin"),
		"--drivername="+HostPathName, "--nodeid="+Name, "--endpoint=unix:/"+socket, "--v=5")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	csi.RegisterIdentityServer(h.server, h)
	csi.RegisterNodeServer(h.server, h)
	if err := n.registerCSI(h.server, HostPathName); err != nil {
		h.Stop()
		return nil, err
	}
	return h, nil
}

// Stop stops the driver.
func (h *HostPath) Stop() {
	h.server.Stop()
	h.conn.Close()
	h.program.End()
}

// HostPathVolume makes a volume of the driver, and returns its handle and its folder.
func (n *Node) HostPathVolume() (handle, folder string, err error) {
	folder = n.Path("hostpath")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", "", err
	}
	// For a folder of the same file system, the driver does not see that it is mounted already.
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=1m"); err != nil {
		return "", "", fmt.Errorf("mounting %s: %w", folder, err)
	}
	// The driver looks for volumes in /tmp. A killed harness would leave them there.
	handle, err = filepath.Rel("/tmp", folder)
	return handle, folder, err
}

// NodeGetInfo returns the ID of the node.
func (h *HostPath) NodeGetInfo(ctx context.Context, req *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return h.node.NodeGetInfo(ctx, req)
}

// NodeGetCapabilities returns that volumes are not staged.
func (h *HostPath) NodeGetCapabilities(ctx context.Context, req *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return h.node.NodeGetCapabilities(ctx, req)
}

// NodePublishVolume mounts a volume for a pod.
func (h *HostPath) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return h.node.NodePublishVolume(ctx, req)
}

// NodeUnpublishVolume unmounts a volume. The folder where it was is left to the kubelet.
func (h *HostPath) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return h.node.NodeUnpublishVolume(ctx, req)
}
