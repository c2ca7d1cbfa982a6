// SPDX-License-Identifier: Apache-2.0

// Package memcri is a CRI runtime that keeps its pods in memory. It runs no process:
// scripts define the behavior of its containers. So a small machine can have as many
// crashing pods as a kubelet supports, and a measurement shows only the kubelet.
//
// A container's arguments are its lives, see Life. The first instance has the first
// one, and so on. All further instances have the last one. Calls that are slow in a
// real runtime take a fixed time, and a limited number of them run at once.
package memcri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options has the durations of calls. Each of these calls needs a slot. All other calls
// return at once.
type Options struct {
	Sandbox, Create, Start, Stop time.Duration
	// Slots is the number of these calls that run at once; 0 is no limit.
	Slots int
	// Dir is a folder of the file system that the runtime reports as its own.
	Dir string
	// Network is the file with the configuration of the sandboxes' network. Without it, the
	// runtime makes up addresses.
	Network string `json:",omitempty"`
}

// Runtime is the runtime. Its state is lost when the process ends.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	options Options
	slots   chan struct{}

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// names are the names of containers and sandboxes, which must be unique.
	names map[string]bool
	// instances is the number of instances that each container has had, by pod UID and
	// container name. It selects the life.
	instances map[string]int
	// newest has the newest instance of each container, by the same keys.
	newest map[string]*container
	images map[string]*runtimeapi.Image
	// away has the dependencies that are absent.
	away        map[string]bool
	journal     []Event
	calls       map[string]Calls
	subscribers map[chan *runtimeapi.ContainerEventResponse]bool
	addresses   int
	// network is nil without Options.Network.
	network *network
}

// New makes a runtime without pods.
func New(o Options) *Runtime {
	r := &Runtime{
		options:   o,
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		names: map[string]bool{}, instances: map[string]int{}, newest: map[string]*container{}, images: map[string]*runtimeapi.Image{},
		away: map[string]bool{}, calls: map[string]Calls{},
		subscribers: map[chan *runtimeapi.ContainerEventResponse]bool{},
	}
	if o.Slots > 0 {
		r.slots = make(chan struct{}, o.Slots)
	}
	return r
}

// Register returns a server for the runtime that counts its calls.
func (r *Runtime) Register() *grpc.Server {
	s := grpc.NewServer(grpc.UnaryInterceptor(r.count), grpc.MaxSendMsgSize(maxMessage), grpc.MaxRecvMsgSize(maxMessage))
	runtimeapi.RegisterRuntimeServiceServer(s, r)
	runtimeapi.RegisterImageServiceServer(s, r)
	return s
}

// maxMessage is the maximum size of a message that the kubelet accepts.
const maxMessage = 16 << 20

// work occupies a slot for a time.
func (r *Runtime) work(ctx context.Context, d time.Duration) error {
	if r.slots != nil {
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newID returns a random ID, as long as those of other runtimes.
func newID() string {
	var id [32]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "no %s has the ID %q", kind, id)
}

// matches reports whether labels has all labels of a selector.
func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if have, found := labels[k]; !found || have != v {
			return false
		}
	}
	return true
}

// Version returns the name and the version of the runtime.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "memcri", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status reports that runtime and network are ready.
func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{}}},
		Features:        &runtimeapi.RuntimeFeatures{},
	}, nil
}

// RuntimeConfig returns a cgroup driver, although there are no cgroups.
func (r *Runtime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig ignores the pod CIDR, because the runtime makes up addresses.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
