// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kubelet-backoff/kubelet-backoff/agent/kubeletconfig"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
)

// A node's curve comes from its kubelet's configuration file. The back-off of its containers
// then has the curve's initial delay and maximum.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "kubelet.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
crashLoopBackOff: {maxContainerRestartPeriod: 20s}
`), 0o600); err != nil {
		log.Fatal(err)
	}

	c, err := kubeletconfig.Load(file, "", map[string]bool{"ReduceDefaultCrashLoopBackOffDecay": true})
	if err != nil {
		log.Fatal(err)
	}
	curve := config.Resolve(c.Settings)
	fmt.Println(curve)

	b := backoff.NewBackOff(curve.Initial, curve.Max)
	b.DelayFirstRestart = curve.DelayFirst
	// Output: [0s 1s 2s 4s 8s 16s 20s] … (initial 1s: ReducedDecay, maximum 20s: PerNodeMaximum)
}
