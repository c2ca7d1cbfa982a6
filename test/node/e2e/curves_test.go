// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// The gate and the metric of the patch curves, which SERIES=all applies.
const (
	gateCurves   = "KubeletRestartBackOffAnnotation"
	metricCurves = "kubelet_restart_curve_containers"
)

// curves starts the kubelet with the gate.
func (e *e2e) curves(t *testing.T) {
	e.requireGate(t, gateCurves)
	e.useCurve(t, askedCurve, "--feature-gates="+gateCurves+"=true")
}

// createAsking creates a pod with annotations.
func (e *e2e) createAsking(t *testing.T, annotations map[string]string, spec v1.PodSpec, parts ...string) *pod {
	p := e.newPod(t, parts...)
	p.annotations = annotations
	p.create(spec)
	return p
}

// curveDisruptions are about the back-offs that containers ask for.
var curveDisruptions = []scenario{
	{"Curves", func(t *testing.T, e *e2e) {
		e.curves(t)
		p := e.createAsking(t, map[string]string{
			asked.CurvePrefix + "main": "initial=1s,max=3s", asked.CurvePrefix + "other": "max=1ms",
		}, alwaysSpec(nil, container("main", "exit=3"), container("other", "exit=3"), container("steady", "")))
		p.occurred(asked.EventInvalidAnnotation, 1)
		p.waitsFor("main", 3)
		e.crash(t, askedCurve, 0)
		p.starting("main", 7)
		for n := 1; n <= 6; n++ {
			p.assertWaited("main", n, []time.Duration{0, 1, 2, 3, 3, 3}[n-1]*time.Second)
		}
		p.startingWithin("other", 3, askedCurve.Delay(1)+patience)
		p.assertWaited("other", 2, askedCurve.Delay(1))
		assert.EqualValues(t, 1, e.scrape(t).value(t, metricCurves))
		p.assertStarts(map[string]int{"steady": 1})

		// Another value counts for the present wait, and none is the node's curve.
		p.annotate(asked.CurvePrefix+"main", "initial=300s,max=300s")
		n := p.starts("main")
		p.exited("main", n)
		time.Sleep(5 * time.Second)
		require.Equal(t, n, p.starts("main"))
		p.annotate(asked.CurvePrefix+"main", "initial=1s,max=1s")
		p.starting("main", n+1)
		e.kubeletArgs = nil
		e.crash(t, askedCurve, 0)
		p.exited("main", n+1)
		time.Sleep(5 * time.Second)
		require.LessOrEqual(t, p.starts("main"), n+2, "the gate is off, so it waits for the node's maximum")
	}},

	// A poller that succeeds restarts at once, at most once a second. Its crashes are on the curve,
	// which starts over when it succeeds, also for a kubelet that starts later.
	{"CurvesIgnore", func(t *testing.T, e *e2e) {
		e.curves(t)
		p := e.createAsking(t, map[string]string{asked.CurvePrefix + "main": "ignore=0,initial=8s"}, alwaysSpec(nil, container("main",
			"exit=0", "exit=0", "exit=0", "sleep=2s exit=0", "exit=1", "exit=1", "sleep=2s exit=0", "exit=0", "exit=1", "")))
		p.starting("main", 3)
		e.crash(t, askedCurve, 0)
		p.startingWithin("main", 10, 3*patience)
		for n := 1; n <= 9; n++ {
			waited := p.waited("main", n)
			if t.Logf("after exit %d: %s", n, waited); n == 6 {
				p.assertWaited("main", n, 8*time.Second)
			} else {
				assert.Less(t, waited, 8*time.Second, "exit %d", n)
			}
			if n > 1 && n != 3 { // after exit 3 or so, the new kubelet does not know of the last start
				assert.GreaterOrEqual(t, p.instance("main", n+1, false).created.Sub(p.instance("main", n, false).created), time.Second, "start %d", n+1)
			}
		}
		p.running()
	}},

	// The stock kubelet ignores the annotation. Ours then starts over, with the pod's curve.
	{"CurvesStock", func(t *testing.T, e *e2e) {
		if *stockFlag == "" {
			skip(t, "there is no -kubelet-stock")
		}
		e.curves(t)
		ours, args := e.Spec.Kubelet, e.kubeletArgs
		t.Cleanup(func() { e.Spec.Kubelet = ours })
		e.kubeletArgs, e.Spec.Kubelet = nil, *stockFlag
		e.crash(t, askedCurve, 0)
		p := e.createAsking(t, map[string]string{asked.CurvePrefix + "main": "initial=1s,max=1s", asked.CurvePrefix + "mian": "x"}, alwaysSpec(nil, container("main", "exit=3")))
		p.startingWithin("main", 3, 3*patience)
		p.assertWaited("main", 2, askedCurve.Delay(1))
		e.kubeletArgs, e.Spec.Kubelet = args, ours
		e.crash(t, askedCurve, 0)
		n := p.starts("main")
		p.startingWithin("main", n+4, patience)
		for i := n + 1; i <= n+3; i++ {
			assert.Less(t, p.waited("main", i), askedCurve.Delay(1), "restart %d", i)
		}
		p.occurred(asked.EventInvalidAnnotation, 1)
	}},

	// The API server refuses what the kubelet would not honor.
	{"CurvesAdmission", func(t *testing.T, e *e2e) {
		old := e.createAsking(t, map[string]string{asked.CurvePrefix + "main": "initial=2ms"}, alwaysSpec(nil, container("main"), container("other")))
		e.applyPolicy(t)
		create := func(value string) error {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-", Namespace: metav1.NamespaceDefault, Annotations: map[string]string{asked.CurvePrefix + "main": value}},
				Spec:       alwaysSpec(nil, container("main")),
			}
			pod.Spec.Containers[0].VolumeMounts = nil
			_, err := e.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(e.ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if errs := asked.ValidateCurves(pod); (err == nil) != (len(errs) == 0) {
				return fmt.Errorf("the policy says %w, the kubelet %v", err, errs)
			}
			return nil
		}
		require.NoError(t, harness.Await(e.ctx, "the policy", patience, func(context.Context) error { return create("initial=1ms") }))
		for _, value := range []string{
			"initial=1s,max=30s,reset=5m", "ignore=0", "ignore=0,ignore=255", "initial=1.5s", "max=5m", "max=300s", "reset=1h", "initial=1s, max=1m0s", "",
			"initial=999ms", "max=301s", "reset=61m", "ignore=256", "ignore=", "ignore=00000", "initial", "max=30", "max=30s,max=40s", "initial=20s,max=10s", strings.Repeat("ignore=0,", 28) + "ignore=0", "Initial=1s", "initial=1s,", "fast", "initial=-1s", "reset=0s",
		} {
			assert.NoError(t, create(value), "%q", value)
		}
		// A pod from before the policy may change, and its value may become valid.
		old.annotate("a", "b")
		old.annotate(asked.CurvePrefix+"other", "ignore=0")
		assert.ErrorContains(t, old.change(asked.CurvePrefix+"main", "initial=3ms"), "must be from 1s to 300s")
		old.annotate(asked.CurvePrefix+"main", "initial=3s")
	}},
}

// applyPolicy creates the policy of deploy/admission for one scenario.
func (e *e2e) applyPolicy(t *testing.T) {
	data, err := os.ReadFile("../../deploy/admission/restart-backoff.yaml")
	require.NoError(t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	require.NoError(t, decoder.Decode(&policy))
	require.NoError(t, decoder.Decode(&binding))
	require.True(t, errors.Is(decoder.Decode(&struct{}{}), io.EOF))
	api := e.kube.AdmissionregistrationV1()
	_, err = api.ValidatingAdmissionPolicies().Create(e.ctx, &policy, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api.ValidatingAdmissionPolicies().Delete(e.ctx, policy.Name, metav1.DeleteOptions{}))
	})
	_, err = api.ValidatingAdmissionPolicyBindings().Create(e.ctx, &binding, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api.ValidatingAdmissionPolicyBindings().Delete(e.ctx, binding.Name, metav1.DeleteOptions{}))
	})
}
