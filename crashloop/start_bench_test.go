// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// cpuTime returns the CPU time of this process and its children that have ended.
func cpuTime(b *testing.B) (total time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		require.NoError(b, syscall.Getrusage(who, &usage))
		total += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return total
}

// BenchmarkStart measures the CPU time of the start and the exit of a container, in the
// agent and in the parent of containers, which is this executable with everything that
// the command imports. cpu-ms/program is that of the program alone.
//
//	go test -run - -bench Start -benchtime 200x ./crashloop
func BenchmarkStart(b *testing.B) {
	for name, confined := range map[string]bool{"confined": true, "unconfined": false} {
		b.Run(name, func(b *testing.B) {
			if err := process.CanConfine(); confined && err != nil {
				b.Skip("no namespaces here: ", err)
			}
			c := v1.Container{Name: "main", Command: []string{"/bin/true"}, VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{
				Containers: []v1.Container{c}, Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
			}}
			before := cpuTime(b)
			r, err := process.New(pod, b.TempDir(), process.Options{Unconfined: !confined}, func(string, []byte) {}, func(string, string) {})
			require.NoError(b, err)
			require.NoError(b, r.CreateSandbox(b.Context()))
			for n := range b.N {
				_, err := r.Start(b.Context(), &c, n)
				require.NoError(b, err)
				for {
					<-r.Changed()
					s, err := r.State(b.Context())
					require.NoError(b, err)
					if s.Instances[c.Name].State == restart.ContainerStateExited {
						break
					}
				}
			}
			require.NoError(b, r.Remove(b.Context()))
			all := cpuTime(b) - before
			for range b.N {
				require.NoError(b, exec.Command("/bin/true").Run())
			}
			ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.N) }
			b.ReportMetric(ms(all), "cpu-ms/op")
			b.ReportMetric(ms(cpuTime(b)-before-all), "cpu-ms/program")
		})
	}
}
