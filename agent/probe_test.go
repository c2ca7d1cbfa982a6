// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestProbes(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []runCase{
		{
			name: "containers start in order, after the startup probe of a sidecar",
			spec: `
initContainers:
- {name: setup}
- {name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 9}}
- {name: fetch}
containers:
- {name: a}
- {name: b}`,
			lives: map[string][]life{"setup": {exits(0, 3*time.Second)}, "fetch": {exits(0, time.Second)}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(2)},
			lasts: 10 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start setup#1 restarts=0
				3s exit setup#1 code=0
				3s start proxy#1 restarts=0
				4s exec proxy#1 up
				4s Warning Unhealthy: Startup probe failed: output
				6s exec proxy#1 up
				6s Warning Unhealthy: Startup probe failed: output
				8s exec proxy#1 up
				8s start fetch#1 restarts=0
				9s exit fetch#1 code=0
				9s start a#1 restarts=0
				9s start b#1 restarts=0
			`,
		},
		{
			name: "RestartAllContainers kills a container that is already being stopped",
			spec: `
containers:
- {name: main, restartPolicy: Always, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]}
- {name: hung, livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 1}}`,
			lives: map[string][]life{"main": {exits(88, 3*time.Second), {}}, "hung": {{takes: time.Hour}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(1)},
			lasts: 5 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				0s start hung#1 restarts=0
				1s exec hung#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container hung failed liveness probe, will be restarted
				1s stop hung#1 grace=30s
				3s exit main#1 code=88
				3s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				3s stop hung#1 grace=0s
				3s exit hung#1 code=137
				3s start main#2 restarts=1
				3s start hung#2 restarts=1
				4s exec hung#2 up
				5s exec hung#2 up
			`,
		},
		{
			name: "a rule restarts the pod after an exit that fails the liveness probe first",
			spec: `
containers:
- {name: main, livenessProbe: {exec: {command: [up]}, failureThreshold: 1}, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}`,
			lives: map[string][]life{"main": {exits(88, 1200*time.Millisecond), {stopCode: 88}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(2)},
			lasts: 5 * time.Second,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe
				1.2s exit main#1 code=88
				1.2s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				1.2s start main#2 restarts=1
				2s exec main#2 up
				2s Warning Unhealthy: Liveness probe failed: output
				2s Normal Killing: Container main failed liveness probe
				3s stop main#2 grace=30s
				3s exit main#2 code=88
				3s remove
			`,
		},
		{
			name: "a failed liveness probe restarts a container that exits with 0",
			spec: `
restartPolicy: OnFailure
containers:
- name: main
  livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 2, periodSeconds: 3, failureThreshold: 2, terminationGracePeriodSeconds: 5}`,
			lives: map[string][]life{"main": {{stopsWell: true}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(100)},
			lasts: 12 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				3s exec main#1 up
				3s Warning Unhealthy: Liveness probe failed: output
				6s exec main#1 up
				6s Warning Unhealthy: Liveness probe failed: output
				6s Normal Killing: Container main failed liveness probe, will be restarted
				6s stop main#1 grace=5s
				6s exit main#1 code=0
				6s start main#2 restarts=1
				9s exec main#2 up
				9s Warning Unhealthy: Liveness probe failed: output
				12s exec main#2 up
				12s Warning Unhealthy: Liveness probe failed: output
				12s Normal Killing: Container main failed liveness probe, will be restarted
				12s stop main#2 grace=5s
				12s exit main#2 code=0
				12s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
			`,
		},
		{
			name: "a failed startup probe ends a pod that is never restarted; liveness waits for it",
			spec: `
restartPolicy: Never
containers:
- name: main
  startupProbe: {exec: {command: [up]}, failureThreshold: 2}
  livenessProbe: {exec: {command: [alive]}}`,
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(100)},
			lasts: time.Minute,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Startup probe failed: output
				2s exec main#1 up
				2s Warning Unhealthy: Startup probe failed: output
				2s Normal Killing: Container main failed startup probe
				2s stop main#1 grace=30s
				2s exit main#1 code=143
				2s remove
			`,
		},
		{
			name:  "a probe that times out has failed, one that cannot run has not",
			spec:  `containers: [{name: main, livenessProbe: {exec: {command: [up]}, timeoutSeconds: 3, failureThreshold: 1}}]`,
			lives: map[string][]life{"main": {{stopCode: 7}}},
			exec: map[string]func(context.Context) (int, error){"up": inTurn(
				func(context.Context) (int, error) { return 0, boom },
				func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
				func(context.Context) (int, error) { return 0, nil },
			)},
			lasts: 6 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe errored and resulted in unknown state: boom
				2s exec main#1 up
				5s Warning Unhealthy: Liveness probe failed: command timed out after 3s
				5s Normal Killing: Container main failed liveness probe, will be restarted
				5s stop main#1 grace=30s
				5s exit main#1 code=7
				5s start main#2 restarts=1
				6s exec main#2 up
			`,
		},
		{
			name: "a container killed after a failed probe that exits with 0 and does not restart has succeeded",
			spec: `
restartPolicy: Never
containers: [{name: main, livenessProbe: {exec: {command: [up]}}}]`,
			lives: map[string][]life{"main": {{stopsWell: true}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(1)},
			lasts: time.Minute,
			phase: v1.PodSucceeded,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe
				1s stop main#1 grace=30s
				1s exit main#1 code=0
				1s remove
			`,
		},
		{
			name: "for restart rules the exit code after a failed probe counts",
			spec: `
restartPolicy: OnFailure
containers:
- name: main
  livenessProbe: {exec: {command: [up]}}
  restartPolicy: OnFailure
  restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [137]}}]`,
			lives: map[string][]life{"main": {{stopsWell: true}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(1)},
			lasts: 3500 * time.Millisecond,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe, will be restarted
				2s stop main#1 grace=30s
				2s exit main#1 code=0
				2s start main#2 restarts=1
				3s exec main#2 up
			`,
		},
		{
			name: "an exit in the stop after a failed probe never triggers a restart of the pod",
			spec: `
restartPolicy: OnFailure
containers:
- name: main
  livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 1}
  restartPolicy: OnFailure
  restartPolicyRules: [{action: RestartPod, exitCodes: {operator: NotIn, values: [0]}}]`,
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(2)},
			lives: map[string][]life{"main": {{}, {}, exits(3, 5500*time.Millisecond), {}}},
			lasts: 20 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe, will be restarted
				2s stop main#1 grace=30s
				2s exit main#1 code=143
				2s start main#2 restarts=1
				3s exec main#2 up
				3s Warning Unhealthy: Liveness probe failed: output
				3s Normal Killing: Container main failed liveness probe, will be restarted
				4s stop main#2 grace=30s
				4s exit main#2 code=143
				4s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				14s start main#3 restarts=2
				15s exec main#3 up
				16s exec main#3 up
				17s exec main#3 up
				18s exec main#3 up
				19s exec main#3 up
				19.5s exit main#3 code=3
				19.5s Normal PodRestarting: Container main exited with code 3, triggering pod restart
				19.5s start main#4 restarts=3
			`,
		},
		{
			name: "the period of a probe counts from its start, and its command has the environment of the manifest",
			spec: `
containers:
- name: main
  env: [{name: UP, value: slow}]
  livenessProbe: {exec: {command: [$(UP)]}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 3}`,
			exec: map[string]func(context.Context) (int, error){
				"slow": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			},
			lasts: 20 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				5s exec main#1 slow
				10s Warning Unhealthy: Liveness probe failed: command timed out after 5s
				10s exec main#1 slow
				15s Warning Unhealthy: Liveness probe failed: command timed out after 5s
				15s exec main#1 slow
				20s Warning Unhealthy: Liveness probe failed: command timed out after 5s
				20s Normal Killing: Container main failed liveness probe, will be restarted
				20s stop main#1 grace=30s
				20s exit main#1 code=143
				20s start main#2 restarts=1
			`,
		},
		{
			name: "a failed probe without a grace period runs no hook",
			spec: `
terminationGracePeriodSeconds: 0
containers:
- name: main
  lifecycle: {preStop: {exec: {command: [bye]}}}
  livenessProbe: {exec: {command: [up]}}`,
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(1)},
			lasts: 1500 * time.Millisecond,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe, will be restarted
				1s stop main#1 grace=2s
				1s exit main#1 code=143
				1s start main#2 restarts=1
			`,
		},
	} {
		tc.run(t)
	}
}
