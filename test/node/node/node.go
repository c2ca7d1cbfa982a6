// SPDX-License-Identifier: Apache-2.0

// Package node makes a node of this machine: containerd, etcd, a kube-apiserver
// and a kubelet, in namespaces of their own. It needs root, runc and, for the API
// server, etcd; containerd is built from its module. All state lies below a work
// folder, and nothing listens outside loopback.
//
// A Harness calls the program that it is in once more, as a process in new
// namespaces. There, New returns the Node, whose parts that process then starts.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Spec tells a node what to do. The harness hands it over on the standard input
// of the process that becomes the node.
type Spec struct {
	// Kubelet and APIServer are the programs.
	Kubelet   string
	APIServer string
	// Network gives the node a network of its own, and its pods addresses.
	Network bool
	// Task is input of the program for itself.
	Task json.RawMessage

	// The harness sets the rest: the name of the run, where etcd is, and the
	// folders of programs, of the node's state, and of its logs.
	ID   string
	Etcd string
	Bin  string
	Dir  string
	Logs string
}

// Node is one run: one containerd, one kubelet, and an API server or none. A new
// one is made for each, so that all start from the same, which is nothing.
type Node struct {
	*supervisor
	// Spec is the harness's input. StartKubelet starts its Kubelet.
	Spec Spec
	// Containerd and Kubelet are those that were started last.
	Containerd *Process
	Kubelet    *Process
}

// Path returns that of something in the node's folder.
func (n *Node) Path(elem ...string) string {
	return filepath.Join(append([]string{n.Spec.Dir}, elem...)...)
}

// RuntimeSocket is where the container runtime listens, whichever it is.
func (n *Node) RuntimeSocket() string { return n.Path("runtime.sock") }

// New makes a node of this process, which a Harness has started as process 1 of
// its own PID namespace. When the process ends, for any reason, the kernel kills
// every process of the node; with the last one the node's mounts end. The input
// contains the node's spec. The node's context ends when the input ends, because
// then the harness has ended.
func New(in io.Reader) (*Node, error) {
	var s Spec
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return nil, fmt.Errorf("the node's spec cannot be read: %w", err)
	}
	ctx, fail := context.WithCancelCause(context.Background())
	go func() {
		// The harness never writes more.
		_, _ = io.Copy(io.Discard, in)
		fail(errors.New("the harness has ended"))
	}()
	n := &Node{supervisor: &supervisor{ctx: ctx, fail: fail, logs: s.Logs}, Spec: s}
	return n, n.secludeMounts()
}
