// SPDX-License-Identifier: Apache-2.0

// Package memcri is a CRI runtime that has its pods in memory: it runs nothing,
// and the lives of its containers are scripted. So a small machine can have as many
// crashing pods as a kubelet may run, and a measurement shows the kubelet alone.
//
// A container's arguments are its lives. Its first instance has the first one, and
// the last one is for all further instances: see Life. Calls that are slow in a real
// runtime take a set time, and a limited number of them run at once.
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

// Options are how long the runtime takes for what it is asked. Each of these
// needs one of the slots; all other calls are answered at once.
type Options struct {
	Sandbox, Create, Start, Stop time.Duration
	// Slots is how many of them run at once; zero is no limit.
	Slots int
	// Dir is a folder of the file system that the runtime says it uses.
	Dir string
}

// Runtime is the runtime. All that it knows is lost with the process.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	options Options
	slots   chan struct{}

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// names are those of containers and sandboxes: each belongs to one instance.
	names map[string]bool
	// instances is how many of a container there have been, by UID of the pod and
	// name. It chooses the life.
	instances map[string]int
	images    map[string]*runtimeapi.Image
	// away holds the dependencies that are not there.
	away        map[string]bool
	journal     []Event
	calls       map[string]Calls
	subscribers map[chan *runtimeapi.ContainerEventResponse]bool
	addresses   int
}

// New makes a runtime without pods.
func New(o Options) *Runtime {
	r := &Runtime{
		options:   o,
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		names: map[string]bool{}, instances: map[string]int{}, images: map[string]*runtimeapi.Image{},
		away: map[string]bool{}, calls: map[string]Calls{},
		subscribers: map[chan *runtimeapi.ContainerEventResponse]bool{},
	}
	if o.Slots > 0 {
		r.slots = make(chan struct{}, o.Slots)
	}
	return r
}

// Register makes the runtime answer a server's calls, and counts them.
func (r *Runtime) Register() *grpc.Server {
	s := grpc.NewServer(grpc.UnaryInterceptor(r.count), grpc.MaxSendMsgSize(maxMessage), grpc.MaxRecvMsgSize(maxMessage))
	runtimeapi.RegisterRuntimeServiceServer(s, r)
	runtimeapi.RegisterImageServiceServer(s, r)
	return s
}

// maxMessage is what the kubelet takes at most.
const maxMessage = 16 << 20

// work takes a slot for a while.
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

// newID is as long as other runtimes' are.
func newID() string {
	var id [32]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "no %s has the ID %q", kind, id)
}

// matches reports whether all labels of a selector are there.
func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if have, found := labels[k]; !found || have != v {
			return false
		}
	}
	return true
}

// Version says what this is.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "memcri", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status says that all is ready.
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

// RuntimeConfig names a cgroup driver. There are no cgroups.
func (r *Runtime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig takes what it gets: the addresses of pods are made up.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
