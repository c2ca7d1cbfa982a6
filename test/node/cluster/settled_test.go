// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// wanted is the number of pods of each workload, by label.
var wanted = map[string]int{"web": 6, "store": 3, "agent": 3, "train": 4}

const patience = 3 * time.Minute

// journal returns the events of all nodes in their order.
func (c *cluster) journal() (all []memcri.Event) {
	for _, n := range c.nodes {
		all = append(all, n.journal()...)
	}
	slices.SortStableFunc(all, func(a, b memcri.Event) int { return a.At.Compare(b.At) })
	return all
}

// settled waits until each workload has its pods and these run, until nothing else runs,
// and until the API shows as many restarts as the runtimes have made.
func (c *cluster) settled(t *testing.T, step string) {
	t.Helper()
	c.await(t, step+": the cluster to settle", c.unsettled)
	require.NoError(t, twice(c.journal()), step)
	harness.Progress("pass  %s", step)
}

func (c *cluster) unsettled() error {
	pods, err := c.list()
	if err != nil {
		return err
	}
	_, running := counts(c.journal())
	created := c.created()
	found := map[string]int{}
	expected := map[instance]bool{}
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s on %s is terminating", p.Name, p.Spec.NodeName)
		}
		if err := counted(p, created); err != nil {
			return err
		}
		for _, s := range statuses(p) {
			if s.State.Running != nil {
				expected[instance{string(p.UID), s.Name}] = true
			}
		}
		switch p.Status.Phase {
		case corev1.PodSucceeded, corev1.PodFailed:
			continue
		}
		if !podutils.IsPodReady(&p) {
			return fmt.Errorf("pod %s on %s is not ready: %s", p.Name, p.Spec.NodeName, p.Status.Phase)
		}
		found[p.Labels["app"]]++
	}
	if !maps.Equal(found, wanted) {
		return fmt.Errorf("there are pods of %v, want %v", found, wanted)
	}
	if !maps.Equal(expected, running) {
		return fmt.Errorf("by the API these run: %v; by the runtimes: %v", expected, running)
	}
	return nil
}

// created returns how many instances the runtimes have created of each container.
func (c *cluster) created() map[instance]int {
	created := map[instance]int{}
	for _, n := range c.nodes {
		for i, count := range n.instances() {
			created[i] += count
		}
	}
	return created
}

// counted returns an error unless the API shows as many restarts of the pod's containers as the runtimes have made.
func counted(p corev1.Pod, created map[instance]int) error {
	for _, s := range statuses(p) {
		// A kubelet that ends in a start leaves an instance that counts and was never started.
		if want := created[instance{string(p.UID), s.Name}] - 1; int(s.RestartCount) != want {
			return fmt.Errorf("container %s of pod %s on %s has restart count %d, want %d", s.Name, p.Name, p.Spec.NodeName, s.RestartCount, want)
		}
	}
	return nil
}

func statuses(p corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// list lists all pods.
func (c *cluster) list() ([]corev1.Pod, error) {
	all, err := c.kube.CoreV1().Pods(metav1.NamespaceDefault).List(c.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// of lists the pods of a workload.
func (c *cluster) of(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	all, err := c.list()
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.Labels["app"] != app })
}

// awaitNode waits until the node object satisfies a check.
func (c *cluster) awaitNode(t *testing.T, n *node, what string, check func(*corev1.Node) bool) {
	t.Helper()
	c.await(t, "node "+n.name+" "+what, func() error {
		now, err := c.kube.CoreV1().Nodes().Get(c.ctx, n.name, metav1.GetOptions{})
		if err == nil && !check(now) {
			err = fmt.Errorf("it has version %s, taints %v and conditions %v", now.Status.NodeInfo.KubeletVersion, now.Spec.Taints, now.Status.Conditions)
		}
		return err
	})
}

// await repeats a check until it succeeds. The check uses the cluster's context and not
// one with a limit, so that its last error is not that of the limit.
func (c *cluster) await(t *testing.T, what string, check func() error) {
	t.Helper()
	require.NoError(t, harness.Await(c.ctx, what, patience, func(context.Context) error { return check() }))
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// jobSetRestarts returns how often the JobSet has made all its jobs anew.
func (c *cluster) jobSetRestarts(t *testing.T) int {
	var object struct {
		Status struct{ Restarts int }
	}
	require.NoError(t, c.api.Request(c.ctx, http.MethodGet, jobsets+"/train", nil, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&object)
	}))
	return object.Status.Restarts
}

// storm takes the database away from all pods that need it, and calls during. It gives
// the database back when each of these pods has failed twice after that.
func (c *cluster) storm(t *testing.T, during func()) {
	t.Helper()
	c.setDependency("database", false)
	during()
	before := exits(c.journal())
	c.await(t, "two failures of each pod that needs the database", func() error {
		pods, err := c.list()
		if err != nil {
			return err
		}
		now := exits(c.journal())
		for _, p := range pods {
			i := instance{string(p.UID), "main"}
			if app := p.Labels["app"]; (app == "web" || app == "store" || app == "agent") && now[i] < before[i]+2 {
				err = errors.Join(err, fmt.Errorf("pod %s on %s has failed %d times", p.Name, p.Spec.NodeName, now[i]-before[i]))
			}
		}
		return err
	})
	c.setDependency("database", true)
}
