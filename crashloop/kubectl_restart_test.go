// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPluginRestart(t *testing.T) {
	static := crashing(t, "web", "5m0s", 9)
	static.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
	failed := crashing(t, "web", "5m0s", 9)
	failed.Status.ContainerStatuses[0].State.Waiting.Reason = "RunContainerError"
	pulling := crashing(t, "web", "5m0s", 9)
	pulling.Status.ContainerStatuses[0].State.Waiting = &v1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "web"`}
	ahead := crashing(t, "web", "5m0s", 9)
	ahead.Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt = metav1.NewTime(pluginNow.Add(7 * time.Second))
	whole := crashing(t, "web", "5m0s", 9)
	whole.Status.ContainerStatuses[0].State.Waiting.Message = "back-off 5m0s restarting pod web: Container main exited with code 42, triggering pod restart"
	for name, tc := range map[string]struct {
		pod           v1.Pod
		args          string
		patch, output string
	}{
		"pod": {crashing(t, "web", "5m0s", 9), "restart web", `{"metadata":{"annotations":{"kubelet-backoff.github.io/restart-at":"2026-01-01T12:00:00Z"},"uid":"web"}}`,
			"pod/web annotated: kubelet-backoff.github.io/restart-at=2026-01-01T12:00:00Z\n"},
		"container": {crashing(t, "web", "5m0s", 9), "restart web -c main", `{"metadata":{"annotations":{"restart-at.kubelet-backoff.github.io/main":"2026-01-01T12:00:00Z"},"uid":"web"}}`,
			"pod/web annotated: restart-at.kubelet-backoff.github.io/main=2026-01-01T12:00:00Z\n"},
		"a start that failed": {failed, "restart web", `{"metadata":{"annotations":{"kubelet-backoff.github.io/restart-at":"2026-01-01T12:00:00Z"},"uid":"web"}}`,
			"pod/web annotated: kubelet-backoff.github.io/restart-at=2026-01-01T12:00:00Z\n"},
		"the node's clock is ahead": {ahead, "restart web", `{"metadata":{"annotations":{"kubelet-backoff.github.io/restart-at":"2026-01-01T12:00:08Z"},"uid":"web"}}`,
			"pod/web annotated: kubelet-backoff.github.io/restart-at=2026-01-01T12:00:08Z\n"},
		"a restart of the pod": {whole, "restart web", `{"metadata":{"annotations":{"kubelet-backoff.github.io/restart-at":"2026-01-01T12:00:00Z"},"uid":"web"}}`,
			"pod/web annotated: kubelet-backoff.github.io/restart-at=2026-01-01T12:00:00Z\n"},
		"one container of it": {whole, "restart web -c main", "", "error: container main of pod default/web waits for a restart of the pod: leave out --container\n"},
		"running":             {running(crashing(t, "web", "5m0s", 9)), "restart web", "", "error: no container of pod default/web waits for a restart\n"},
		"running container":   {running(crashing(t, "web", "5m0s", 9)), "restart web -c main", "", "error: container main of pod default/web does not wait for a restart\n"},
		"image":               {pulling, "restart web", "", "error: no container of pod default/web waits for a restart\n"},
		"unknown container":   {crashing(t, "web", "5m0s", 9), "restart web -c mian", "", "error: pod default/web has no container \"mian\" that was started\n"},
		"static pod":          {static, "restart web", "", "error: pod default/web is a static pod: set the annotation in its file on node n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			patch := ""
			api := newFakeAPI(t, map[string][]any{podsPath + "/web": {tc.pod, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Equal(t, "application/merge-patch+json", r.Header.Get("Content-Type"))
				patch = string(body)
			})}})
			status, stdout, stderr := api.run(t, strings.Fields(tc.args)...)
			require.Equal(t, tc.output, stdout+stderr)
			require.Equal(t, tc.patch, patch)
			require.Equal(t, tc.patch == "", status == exitFailed)
		})
	}
	t.Run("the clock of the workstation is wrong", func(t *testing.T) {
		t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
		api := newFakeAPI(t, map[string][]any{podsPath + "/web": {crashing(t, "web", "5m0s", 9), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}})
		var out, errs bytes.Buffer
		execute(newPluginCommand(func() time.Time { return pluginNow.Add(time.Hour) }), []string{"restart", "web", "--server", api.URL}, strings.NewReader(""), &out, &errs)
		require.Equal(t, "pod/web annotated: kubelet-backoff.github.io/restart-at=2026-01-01T12:00:00Z\n", out.String()+errs.String())
	})
	t.Run("forbidden", func(t *testing.T) {
		api := newFakeAPI(t, map[string][]any{podsPath + "/web": {crashing(t, "web", "5m0s", 9), apiError(http.StatusForbidden, metav1.StatusReasonForbidden, "pods \"web\" is forbidden")}})
		status, stdout, stderr := api.run(t, "restart", "web")
		require.Equal(t, "error: pods \"web\" is forbidden\n", stderr)
		require.Empty(t, stdout)
		require.Equal(t, exitFailed, status)
	})
}
