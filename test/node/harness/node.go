// SPDX-License-Identifier: Apache-2.0

// Package harness runs a node on this machine: a container runtime, etcd, a
// kube-apiserver and a kubelet, in their own namespaces. It needs root, what the
// runtime needs, such as runc, and, for the API server, etcd. It builds the runtime
// from a module that pins it. All state is below a work folder, and nothing listens
// outside loopback.
//
// A Harness runs its own program again, as a process in new namespaces. In that
// process, New returns the Node, and the program starts its parts.
package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Spec is the input of a node. The harness writes it to the standard input of the
// process that becomes the node.
type Spec struct {
	// Kubelet and APIServer are the programs.
	Kubelet   string
	APIServer string
	// Runtime is the name of the container runtime, or empty for DefaultRuntime.
	Runtime string
	// Network gives the node its own network, and its pods addresses.
	Network bool
	// Machine gives the node the whole machine: it has no PID namespace, systemd makes
	// its cgroups, and nothing is cleared. It is for a virtual machine, which ends after
	// the node.
	Machine bool
	// Task is input for the program that runs in the node.
	Task json.RawMessage

	// The harness sets the rest: the name of the run, where etcd is, and the
	// folders of programs, of the node's state, and of its logs.
	ID   string
	Etcd string
	Bin  string
	Dir  string
	Logs string
}

// Node is a node with a container runtime, a kubelet, and possibly an API server. Each run
// has a new node, so that all runs start without any state.
type Node struct {
	*supervisor
	// Spec is the harness's input. StartKubelet starts its Kubelet.
	Spec Spec
	// RuntimeProcess, Kubelet and Etcd are the processes that were started last.
	RuntimeProcess *Process
	Kubelet        *Process
	Etcd           *Process

	runtime              containerRuntime
	runtimeCommand       []string
	etcdURL, etcdPeerURL string
}

// Path returns a path in the node's folder.
func (n *Node) Path(elem ...string) string {
	return filepath.Join(append([]string{n.Spec.Dir}, elem...)...)
}

// RuntimeSocket returns the socket on which the container runtime listens.
func (n *Node) RuntimeSocket() string { return n.Path("runtime.sock") }

// DialRuntime returns a connection to the container runtime. The caller closes it.
func (n *Node) DialRuntime() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+n.RuntimeSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// New makes this process a node. A Harness started it as process 1 of its own PID
// namespace. When the process ends for any reason, the kernel kills every process of
// the node, and the node's mounts go with the last one. The input contains the
// node's spec. The node's context ends with the input, because that means that the
// harness has ended.
func New(in io.Reader) (*Node, error) {
	var s Spec
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return nil, fmt.Errorf("reading the node's spec: %w", err)
	}
	runtime, err := runtimeNamed(s.Runtime)
	if err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(context.Background())
	go func() {
		// The harness writes nothing after the spec.
		_, _ = io.Copy(io.Discard, in)
		fail(errors.New("the harness has ended"))
	}()
	n := &Node{supervisor: &supervisor{ctx: ctx, fail: fail, logs: s.Logs}, Spec: s, runtime: runtime}
	return n, n.secludeMounts()
}
