// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/drain"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

var (
	//go:embed testdata/workloads.yaml
	workloads []byte
	//go:embed testdata/job.yaml
	jobManifest []byte
)

// paths are the paths of the kinds of the workloads in the API.
var paths = map[string]string{
	"Deployment":          "/apis/apps/v1/namespaces/default/deployments",
	"StatefulSet":         "/apis/apps/v1/namespaces/default/statefulsets",
	"DaemonSet":           "/apis/apps/v1/namespaces/default/daemonsets",
	"PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
	"JobSet":              jobsets,
}

// completions is the number of completions of a job.
const completions = 6

// TestCluster takes a cluster of three nodes from stock kubelets to ours and back, while
// its pods crash, are evicted and are lost. After each step every workload has its pods,
// and each restart is counted.
func TestCluster(t *testing.T) {
	if !*insideFlag {
		t.Skip("this needs root and patched binaries: make node-cluster")
	}
	ran = true
	c := startCluster(t, 3)
	for _, n := range c.nodes {
		c.startKubelet(t, n, *stockFlag)
	}
	for _, text := range bytes.Split(workloads, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal(text, &kind))
		c.create(t, paths[kind.Kind], text)
	}
	c.settled(t, "stock kubelets: all workloads run")
	c.storm(t, func() {})
	c.settled(t, "stock kubelets: pods crash")
	c.trigger()
	c.await(t, "a new start of the JobSet", func() error {
		if n := c.jobSetRestarts(t); n != 1 {
			return fmt.Errorf("it has restarted %d times, want 1", n)
		}
		return nil
	})
	c.settled(t, "stock kubelets: a trigger makes all jobs of the JobSet anew")

	for _, n := range c.nodes[:2] {
		job := c.runJob(t, n, "drained")
		c.drain(t, n)
		c.storm(t, func() { c.replaceKubelet(t, n, *kubeletFlag) })
		c.cordon(t, n, false)
		c.awaitDisrupted(t, job)
		c.settled(t, n.name+": drained, and our kubelet while pods crash")
	}
	c.replaceInPlace(t, c.nodes[2], *kubeletFlag, "our kubelet while pods crash")

	c.restartPods(t)
	job := c.awaitJob(t, c.createJob(t, "triggers", "sleep=20ms exit=42", "sleep=20ms exit=0"), batchv1.JobComplete)
	assert.EqualValues(t, completions, job.Status.Succeeded, "successful pods of the job whose pods restart in place")
	assert.Zero(t, job.Status.Failed, "failed pods of this job")
	job = c.awaitJob(t, c.createJob(t, "fails", "sleep=1s exit=43"), batchv1.JobFailed)
	assert.Zero(t, job.Status.Succeeded, "successful pods of the job that fails")
	// Without the policy it would fail for its backoffLimit.
	failed := slices.IndexFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool { return condition.Type == batchv1.JobFailed })
	assert.Equal(t, batchv1.JobReasonPodFailurePolicy, job.Status.Conditions[failed].Reason, "reason of the job that fails")
	c.settled(t, "our kubelets: a job whose pods restart in place, and one that fails")

	c.loseNode(t, c.nodes[0], true)
	c.loseNode(t, c.nodes[1], false)

	for _, n := range c.nodes {
		c.replaceInPlace(t, n, *stockFlag, "the stock kubelet again, while pods crash")
	}
	c.deleteAll(t)
}

// replaceInPlace replaces the kubelet of a node with all its pods, while some of these
// crash and others are of a Job. Those that do not crash, on all nodes, go on.
func (c *cluster) replaceInPlace(t *testing.T, n *node, program, step string) {
	t.Helper()
	trained, restarts := c.of(t, "train"), c.jobSetRestarts(t)
	pods := map[string][]string{}
	for app := range wanted {
		pods[app] = uids(c.of(t, app))
	}
	unchanged := c.startsOf(t, trained, "setup", "helper", "main")
	logs := c.startsOf(t, c.of(t, "agent"), "log")
	job := c.runJob(t, n, "kept")
	c.storm(t, func() { c.replaceKubelet(t, n, program) })
	assert.Equal(t, completions, c.awaitComplete(t, job), "pods of job %s", job)
	c.settled(t, n.name+": "+step)
	for app := range wanted {
		assert.Equal(t, pods[app], uids(c.of(t, app)), "UIDs of the pods of %s", app)
	}
	assert.Equal(t, restarts, c.jobSetRestarts(t), "restarts of the JobSet")
	assert.Equal(t, unchanged, c.startsOf(t, trained, "setup", "helper", "main"), "starts of the JobSet's containers, which do not crash")
	assert.Equal(t, logs, c.startsOf(t, c.of(t, "agent"), "log"), "starts of the DaemonSet's container log, which does not crash")
}

// startsOf returns the numbers of starts of these containers of pods, by pod and
// container.
func (c *cluster) startsOf(t *testing.T, pods []corev1.Pod, containers ...string) map[string]int {
	starts, _ := counts(c.journal())
	found := map[string]int{}
	for _, p := range pods {
		for _, name := range containers {
			i := instance{string(p.UID), name}
			require.NotZero(t, starts[i], "starts of container %s of pod %s", name, p.Name)
			found[p.Name+"/"+name] = starts[i]
		}
	}
	return found
}

// trigger makes the containers of the JobSet exit with the code of their rule.
func (c *cluster) trigger() {
	c.setDependency("gpu", false)
	c.setDependency("gpu", true)
}

// restartPods triggers a restart of each pod of the JobSet. Its controller and the Job's
// do not notice it.
func (c *cluster) restartPods(t *testing.T) {
	pods, restarts := c.of(t, "train"), c.jobSetRestarts(t)
	want := c.startsOf(t, pods, "setup", "helper", "main")
	for name := range want {
		want[name]++
	}
	c.trigger()
	c.await(t, "one more start of each container of the JobSet", func() error {
		if got := c.startsOf(t, pods, "setup", "helper", "main"); !assert.ObjectsAreEqual(want, got) {
			return fmt.Errorf("starts are %v, want %v", got, want)
		}
		return nil
	})
	c.settled(t, "our kubelets: a trigger restarts the pods of the JobSet in place")
	assert.Equal(t, want, c.startsOf(t, pods, "setup", "helper", "main"), "starts of the JobSet's containers")
	assert.Equal(t, uids(pods), uids(c.of(t, "train")), "UIDs of the JobSet's pods")
	assert.Equal(t, restarts, c.jobSetRestarts(t), "restarts of the JobSet")
}

func uids(pods []corev1.Pod) (all []string) {
	for _, p := range pods {
		all = append(all, string(p.UID))
	}
	slices.Sort(all)
	return all
}

// loseNode ends a kubelet, until the pods of its node are evicted, and brings it back. If
// the runtime is lost too, nothing runs on the node after its return; otherwise its
// containers run all the time.
func (c *cluster) loseNode(t *testing.T, n *node, withRuntime bool) {
	job := c.runJob(t, n, "lost")
	own := c.on(t, n)
	require.True(t, slices.ContainsFunc(own, func(p corev1.Pod) bool { return p.Labels["app"] == "web" }), "node %s has no pod of the Deployment", n.name)
	agents := slices.DeleteFunc(own, func(p corev1.Pod) bool { return p.Labels["app"] != "agent" })
	before := c.startsOf(t, agents, "main", "log")
	what := "the kubelet was lost, and is back"
	if withRuntime {
		what = "the node was lost, and is back"
		c.lose(n)
	} else {
		n.kubelet.Kill()
	}
	c.awaitNode(t, n, "without a kubelet", func(now *corev1.Node) bool { return !isReady(now) })
	c.await(t, "the eviction of the node's pods", func() error {
		for _, p := range c.on(t, n) {
			if p.Labels["app"] != "agent" && p.DeletionTimestamp == nil {
				return fmt.Errorf("pod %s is not deleted", p.Name)
			}
		}
		return nil
	})
	c.await(t, "the pods of the Deployment elsewhere", func() error {
		ready := 0
		for _, p := range c.of(t, "web") {
			if p.Spec.NodeName != n.name && podutils.IsPodReady(&p) {
				ready++
			}
		}
		if ready != wanted["web"] {
			return fmt.Errorf("%d are ready, want %d", ready, wanted["web"])
		}
		return nil
	})
	if withRuntime {
		n.serve(t)
	}
	c.startKubelet(t, n, *kubeletFlag)
	if withRuntime {
		c.awaitDisrupted(t, job)
	} else {
		// The pods of the job have run to their end without the kubelet.
		assert.Equal(t, completions, c.awaitComplete(t, job), "pods of job %s", job)
	}
	c.settled(t, n.name+": "+what)
	if !withRuntime {
		assert.Equal(t, before, c.startsOf(t, agents, "main", "log"), "starts of the DaemonSet's containers, which ran all the time")
	}
}

// on lists the pods of a node.
func (c *cluster) on(t *testing.T, n *node) []corev1.Pod {
	t.Helper()
	all, err := c.list()
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.Spec.NodeName != n.name })
}

// createJob creates a job whose containers have these lives. Its name begins with why.
func (c *cluster) createJob(t *testing.T, why string, lives ...string) (name string) {
	var job batchv1.Job
	require.NoError(t, yaml.UnmarshalStrict(jobManifest, &job))
	job.GenerateName = why + "-"
	job.Spec.Template.Spec.Containers[0].Args = lives
	created, err := c.kube.BatchV1().Jobs(metav1.NamespaceDefault).Create(c.ctx, &job, metav1.CreateOptions{})
	require.NoError(t, err)
	return created.Name
}

// runJob creates a job that takes a while, and waits until a pod of it runs on the node.
func (c *cluster) runJob(t *testing.T, n *node, why string) (name string) {
	name = c.createJob(t, why, "sleep=20s exit=0")
	c.await(t, "a pod of job "+name+" on "+n.name, func() error {
		_, running := counts(n.journal())
		for _, p := range c.on(t, n) {
			if p.Labels[batchv1.JobNameLabel] == name && running[instance{string(p.UID), "main"}] {
				return nil
			}
		}
		return fmt.Errorf("none runs")
	})
	return name
}

// awaitDisrupted waits until a job of runJob is complete. It has made pods anew for those
// that were disrupted, which do not count as failures.
func (c *cluster) awaitDisrupted(t *testing.T, name string) {
	t.Helper()
	assert.Greater(t, c.awaitComplete(t, name), completions, "pods of job %s", name)
}

// awaitComplete waits until a job of runJob is complete, and returns how many pods it had.
func (c *cluster) awaitComplete(t *testing.T, name string) int {
	t.Helper()
	job := c.awaitJob(t, name, batchv1.JobComplete)
	assert.EqualValues(t, completions, job.Status.Succeeded, "successful pods of job %s", name)
	pods := map[string]bool{}
	for _, e := range c.journal() {
		if strings.HasPrefix(e.Pod, name+"-") && e.What == memcri.Started {
			assert.False(t, pods[e.UID], "pod %s, which does not fail, started again", e.Pod)
			pods[e.UID] = true
		}
	}
	return len(pods)
}

// awaitJob waits for the end of a job and for the right restart counts of its pods. It deletes the job, and returns it as it was.
func (c *cluster) awaitJob(t *testing.T, name string, end batchv1.JobConditionType) (job *batchv1.Job) {
	t.Helper()
	jobs := c.kube.BatchV1().Jobs(metav1.NamespaceDefault)
	c.await(t, "the end of job "+name, func() (err error) {
		job, err = jobs.Get(c.ctx, name, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == end && c.Status == corev1.ConditionTrue }) {
			err = fmt.Errorf("its status is %+v, want condition %s", job.Status, end)
		}
		return err
	})
	c.await(t, "the restart counts of job "+name, func() error {
		pods, err := c.list()
		if err != nil {
			return err
		}
		// Those of a lost or drained node may be terminating.
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
			return p.Labels[batchv1.JobNameLabel] != name || p.DeletionTimestamp != nil
		})
		if len(pods) == 0 {
			return errors.New("it has no pods")
		}
		created := c.created()
		for _, p := range pods {
			err = errors.Join(err, counted(p, created))
		}
		return err
	})
	require.NoError(t, jobs.Delete(c.ctx, name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	return job
}

func (c *cluster) cordon(t *testing.T, n *node, cordoned bool) {
	t.Helper()
	object, err := c.kube.CoreV1().Nodes().Get(c.ctx, n.name, metav1.GetOptions{})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, drain.RunCordonOrUncordon(c.drainer(&out), object, cordoned), out.String())
}

// drain cordons a node and evicts its pods, as kubectl does.
func (c *cluster) drain(t *testing.T, n *node) {
	t.Helper()
	c.cordon(t, n, true)
	var out bytes.Buffer
	require.NoError(t, drain.RunNodeDrain(c.drainer(&out), n.name), out.String())
}

func (c *cluster) drainer(out *bytes.Buffer) *drain.Helper {
	return &drain.Helper{Ctx: c.ctx, Client: c.kube, IgnoreAllDaemonSets: true, GracePeriodSeconds: -1, Timeout: patience, Out: out, ErrOut: out}
}

// deleteAll deletes the workloads, after which nothing may run.
func (c *cluster) deleteAll(t *testing.T) {
	background := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	require.NoError(t, c.kube.AppsV1().Deployments(metav1.NamespaceDefault).Delete(c.ctx, "web", background))
	require.NoError(t, c.kube.AppsV1().StatefulSets(metav1.NamespaceDefault).Delete(c.ctx, "store", background))
	require.NoError(t, c.kube.AppsV1().DaemonSets(metav1.NamespaceDefault).Delete(c.ctx, "agent", background))
	require.NoError(t, c.api.Request(c.ctx, http.MethodDelete, jobsets+"/train", nil, nil))
	c.await(t, "the end of all pods", func() error {
		pods, err := c.list()
		if err != nil {
			return err
		}
		if _, running := counts(c.journal()); len(pods) > 0 || len(running) > 0 {
			return fmt.Errorf("there are still %d pods, and %d containers run", len(pods), len(running))
		}
		return nil
	})
	harness.Progress("pass  all workloads are deleted")
}
