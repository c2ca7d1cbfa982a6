// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
)

// Run the container of a pod as a process without namespaces.
func Example() {
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever,
		Containers:    []v1.Container{{Name: "main", Command: []string{"/bin/sh", "-c"}, Args: []string{"echo hello; exit 3"}}},
	}}
	pod.Name, pod.Namespace, pod.UID = "worker", "default", "b36a0a9e"

	dir, err := os.MkdirTemp("", "pod-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	output := func(container string, line []byte) { fmt.Printf("%s: %s\n", container, line) }
	warn := func(container, message string) { fmt.Println(container, message) }
	runtime, err := process.New(pod, dir, process.Options{Unconfined: true}, output, warn)
	if err != nil {
		panic(err)
	}
	a, err := agent.New(agent.Options{Pod: pod, Runtime: runtime})
	if err != nil {
		panic(err)
	}
	fmt.Println(a.Run(context.Background()))

	// Output:
	// main: hello
	// Failed
}
