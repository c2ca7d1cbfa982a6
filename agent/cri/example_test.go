// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/cri"
	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
)

// Run a pod in containerd. This needs root, and no kubelet at the same endpoint.
func Example() {
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyOnFailure,
		Containers:    []v1.Container{{Name: "main", Image: "busybox", Command: []string{"sh", "-c", "exit 3"}}},
	}}
	pod.Name = "worker"
	podspec.Default(pod)

	const dir = "/var/lib/my-agent/worker"
	output := func(container string, line []byte) { fmt.Printf("%s | %s\n", container, line) }
	runtime, err := cri.New(context.Background(), "unix:///run/containerd/containerd.sock", pod, dir, output)
	if err != nil {
		panic(err)
	}
	defer runtime.Close()
	a, err := agent.New(agent.Options{Pod: pod, Runtime: runtime, StatusFile: filepath.Join(dir, cri.StatusFile)})
	if err != nil {
		panic(err)
	}
	fmt.Println(a.Run(context.Background()))
}
