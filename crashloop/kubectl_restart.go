// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

func newPluginRestart(c *cluster, now func() time.Time) *cobra.Command {
	var container string
	cmd := &cobra.Command{
		Use:   "restart POD [-c CONTAINER]",
		Short: "End the back-off of a pod's containers",
		Long: `End the back-off of a pod's containers, or of one of them, or of a restart of the
whole pod. The back-off starts over (once in ten minutes). This sets the annotation
` + asked.RestartAtAnnotation + ` of the pod, or
` + asked.RestartAtPrefix + `CONTAINER, to the present time of the API
server. The kubelet must be one of this project with the feature gate
KubeletRestartAtAnnotation. It records an event of the pod: ` + asked.EventBackOffEnded + `, or
` + asked.EventRestartRefused + ` if it ended a wait of the pod less than ` + asked.RestartAtInterval.String() + ` before. Any other
kubelet ignores the annotation.

Exit status: 0 the annotation was set; 1 it could not be set, or nothing waits; 2
wrong usage.`,
		Example: `  kubectl crashloop restart POD

  # the outcome
  kubectl events --for pod/POD`,
		Args: cobra.ExactArgs(1),

		ValidArgsFunction: c.complete("pods", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.connect(); err != nil {
				return failed(err)
			}
			pod := &v1.Pod{}
			if err := c.Get().Namespace(c.namespace).Resource("pods").Name(args[0]).Do(cmd.Context()).Into(pod); err != nil {
				return failed(err)
			}
			annotation := asked.RestartAtAnnotation
			if container != "" {
				annotation = asked.RestartAtPrefix + container
			}
			at, err := http.ParseTime(c.date())
			if err != nil {
				at = now()
			}
			at, err = restartTime(pod, container, at)
			if err != nil {
				return failed(err)
			}
			value := at.UTC().Format(time.RFC3339Nano)
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: value}, "uid": pod.UID}})
			if err != nil {
				return err
			}
			if err := c.Patch(types.MergePatchType).Namespace(c.namespace).Resource("pods").Name(pod.Name).Body(patch).Do(cmd.Context()).Error(); err != nil {
				return failed(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pod/%s annotated: %s=%s\n", pod.Name, annotation, value)
			return err
		},
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "only this container")
	usage.Name(cmd, map[string]string{"container": "CONTAINER"})
	return cmd
}

// failedStarts are the reasons of containers that wait after a start that failed.
var failedStarts = []string{"CreateContainerError", "RunContainerError", "PreStartHookError", "PostStartHookError"}

// restartTime returns the time for the annotation: now, or a time after the exits that the
// status has. It returns an error if no container waits.
func restartTime(pod *v1.Pod, container string, now time.Time) (time.Time, error) {
	name := "pod " + pod.Namespace + "/" + pod.Name
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return now, fmt.Errorf("%s is a static pod: set the annotation in its file on node %s", name, pod.Spec.NodeName)
	}
	waits, found := false, false
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if container != "" && s.Name != container {
			continue
		}
		found = true
		_, _, inBackOff := plan.Waiting(pod, &s)
		if w := s.State.Waiting; !inBackOff && (w == nil || !slices.Contains(failedStarts, w.Reason)) {
			continue
		}
		if container != "" && plan.WaitsForPod(&s) {
			return now, fmt.Errorf("container %s of %s waits for a restart of the pod: leave out --container", container, name)
		}
		waits = true
		// A time in the status has no fraction.
		if exit := s.LastTerminationState.Terminated; exit != nil && now.Before(exit.FinishedAt.Add(time.Second)) {
			now = exit.FinishedAt.Add(time.Second)
		}
	}
	switch {
	case container != "" && !found:
		return now, fmt.Errorf("%s has no container %q that was started", name, container)
	case !waits && container != "":
		return now, fmt.Errorf("container %s of %s does not wait for a restart", container, name)
	case !waits:
		return now, fmt.Errorf("no container of %s waits for a restart", name)
	}
	return now, nil
}
