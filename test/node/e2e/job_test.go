// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// createJob creates a job with the name of the test. Its pod must not fail. The
// returned pod has the name of the job, and the folder of its pods.
func (e *e2e) createJob(t *testing.T, policy *batchv1.PodFailurePolicy, spec v1.PodSpec) *pod {
	return e.createJobWith(t, 0, policy, spec)
}

// createJobWith is createJob with a limit of failures and restarts.
func (e *e2e) createJobWith(t *testing.T, limit int32, policy *batchv1.PodFailurePolicy, spec v1.PodSpec) *pod {
	e.requireRulesOf(t, spec)
	p := e.newPod(t)
	_, err := p.jobs().Create(e.ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: metav1.NamespaceDefault},
		Spec: batchv1.JobSpec{
			BackoffLimit: &limit, PodFailurePolicy: policy,
			Template: v1.PodTemplateSpec{Spec: p.withVolumes(spec)},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		pods := p.podsOfJob()
		assert.NoError(t, p.jobs().Delete(e.ctx, p.name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
		for i := range pods {
			if p.name, p.uid = pods[i].Name, pods[i].UID; t.Failed() {
				p.dump()
			}
			p.delete(0)
		}
	})
	return p
}

func (p *pod) jobs() batchclient.JobInterface { return p.kube.BatchV1().Jobs(metav1.NamespaceDefault) }

// awaitJob waits until the job satisfies the check, and returns it.
func (p *pod) awaitJob(what string, check func(*batchv1.Job) bool) (job *batchv1.Job) {
	p.t.Helper()
	// The check ignores Await's context, so that its last error is the job's status and
	// not a timeout.
	require.NoError(p.t, harness.Await(p.ctx, what+" of job "+p.name, patience, func(context.Context) (err error) {
		if job, err = p.jobs().Get(p.ctx, p.name, metav1.GetOptions{}); err == nil && !check(job) {
			err = fmt.Errorf("its status is %+v", job.Status)
		}
		return err
	}))
	return job
}

// podsOfJob returns all pods of the job so far.
func (p *pod) podsOfJob() []v1.Pod {
	p.t.Helper()
	pods, err := p.kube.CoreV1().Pods(metav1.NamespaceDefault).List(p.ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + p.name})
	require.NoError(p.t, err)
	return pods.Items
}
