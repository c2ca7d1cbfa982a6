// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
)

func Example() {
	var pod v1.Pod
	err := yaml.Unmarshal([]byte(`
metadata: {name: worker}
spec:
  nodeName: elsewhere
  containers:
  - name: main
    image: example.com/worker
    command: [/bin/echo, $(GREETING)]
    env: [{name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: GREETING, value: "hello $(WHO)"}]
    livenessProbe: {httpGet: {port: 80}, periodSeconds: -1}
`), &pod)
	if err != nil {
		panic(err)
	}
	podspec.Default(&pod)
	warnings, errs := podspec.Validate(&pod, process.Support)
	for _, w := range warnings {
		fmt.Println("warning:", w)
	}
	for _, err := range errs {
		fmt.Println("error:", err)
	}
	c := &pod.Spec.Containers[0]
	env, err := podspec.Environment(&pod, c, "10.0.0.1")
	if err != nil {
		panic(err)
	}
	fmt.Println(podspec.Command(c, env))

	// Output:
	// warning: not honored by the process runtime: spec.containers[0].image, spec.nodeName
	// error: spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be between 1 and 2147483647, inclusive
	// [/bin/echo hello worker]
}
