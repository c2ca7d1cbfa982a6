// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// An agent asks before it starts a container, with what it knows of the instances before. If the container has to wait, the
// error says until when, and NextSync when to sync the pod again.
func ExampleDoBackOff() {
	backOff := restart.NewBackOff(clock.RealClock{}, backoff.Curve{Initial: 10 * time.Second, Max: 5 * time.Minute})
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "b36a0a9e"
	main := &pod.Spec.Containers[0]

	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	last := restart.ContainerStatus{Name: "main", State: restart.ContainerStateExited, ExitCode: 1, StartedAt: now, FinishedAt: now}
	for restarts := 0; restarts < 3; {
		wait, message, err := restart.DoBackOff(context.Background(), nil, pod, main, []restart.ContainerStatus{last}, backOff, now)
		if !wait {
			fmt.Println(now.Format(time.TimeOnly), "start")
			restarts++
			last.StartedAt, last.FinishedAt, last.RestartCount = now, now, restarts // It exits at once.
			continue
		}
		delay, _ := restart.NextSync(err, 10*time.Second, time.Minute, now)
		fmt.Println(now.Format(time.TimeOnly), message+":", "sync again in", delay)
		now = now.Add(delay)
	}
	// Output:
	// 12:00:00 start
	// 12:00:00 back-off 10s restarting failed container=main pod=web_default(b36a0a9e): sync again in 10s
	// 12:00:10 start
	// 12:00:10 back-off 20s restarting failed container=main pod=web_default(b36a0a9e): sync again in 20s
	// 12:00:30 start
}
