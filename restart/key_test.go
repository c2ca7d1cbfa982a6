// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testPod(resources v1.ResourceRequirements) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", ResourceVersion: "7"},
		Spec: v1.PodSpec{
			Containers:     []v1.Container{{Name: "main", Image: "image:1", Resources: resources}},
			InitContainers: []v1.Container{{Name: "init", Image: "image:1"}},
			EphemeralContainers: []v1.EphemeralContainer{
				{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "image:1"}},
			},
		},
	}
}

func list(quantities ...string) v1.ResourceList {
	names := []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU}
	l := v1.ResourceList{}
	for i, q := range quantities {
		l[names[i]] = resource.MustParse(q)
	}
	return l
}

func keyOf(pod *v1.Pod) string { return Key(pod, &pod.Spec.Containers[0]) }

// Upstream's key contains the address of a quantity that is kept as a decimal.
func TestKeyIsTheSameForEqualPods(t *testing.T) {
	quantities := []string{"1.5Gi", "1.1Gi", "100m", "9223372036854775807", "9223372036854775808", "1e3", "1Ki", "0.1", "0"}
	for _, q := range quantities {
		t.Run(q, func(t *testing.T) {
			pod := testPod(v1.ResourceRequirements{Requests: list(q), Limits: list(q, q)})
			key := keyOf(pod)
			assert.Equal(t, key, keyOf(pod), "asked again")
			assert.Equal(t, key, keyOf(pod.DeepCopy()), "copied")

			data, err := json.Marshal(pod)
			require.NoError(t, err)
			read := &v1.Pod{}
			require.NoError(t, json.Unmarshal(data, read))
			assert.Equal(t, key, keyOf(read), "written as JSON and read")

			data, err = pod.Marshal()
			require.NoError(t, err)
			read = &v1.Pod{}
			require.NoError(t, read.Unmarshal(data))
			assert.Equal(t, key, keyOf(read), "written as protobuf and read")
		})
	}
	for _, equal := range [][2]string{{"1000m", "1"}, {"1Ki", "1024"}, {"1.5Gi", "1536Mi"}, {"1e3", "1k"}, {"0", "0m"}} {
		assert.Equal(t, keyOf(testPod(v1.ResourceRequirements{Requests: list(equal[0])})),
			keyOf(testPod(v1.ResourceRequirements{Requests: list(equal[1])})), "%s and %s", equal[0], equal[1])
	}
	assert.Equal(t, keyOf(testPod(v1.ResourceRequirements{})),
		keyOf(testPod(v1.ResourceRequirements{Requests: v1.ResourceList{}, Claims: []v1.ResourceClaim{}})), "nothing and nil")
	assert.Equal(t, keyOf(testPod(v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "a"}, {Name: "b"}}})),
		keyOf(testPod(v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "b"}, {Name: "a"}}})), "claims in another order")
}

func TestKeyDiffers(t *testing.T) {
	base := testPod(v1.ResourceRequirements{Requests: list("1Gi")})
	seen := map[string]string{keyOf(base): "nothing changed"}
	for what, change := range map[string]func(*v1.Pod, *v1.Container){
		"pod name":       func(p *v1.Pod, _ *v1.Container) { p.Name = "web2" },
		"namespace":      func(p *v1.Pod, _ *v1.Container) { p.Namespace = "shop2" },
		"UID":            func(p *v1.Pod, _ *v1.Container) { p.UID = "u2" },
		"container name": func(_ *v1.Pod, c *v1.Container) { c.Name = "other" },
		"image":          func(_ *v1.Pod, c *v1.Container) { c.Image = "image:2" },
		"request":        func(_ *v1.Pod, c *v1.Container) { c.Resources.Requests = list("2Gi") },
		"second request": func(_ *v1.Pod, c *v1.Container) { c.Resources.Requests = list("1Gi", "1") },
		"limit instead":  func(_ *v1.Pod, c *v1.Container) { c.Resources = v1.ResourceRequirements{Limits: list("1Gi")} },
		"limit too":      func(_ *v1.Pod, c *v1.Container) { c.Resources.Limits = list("1Gi") },
		"claim":          func(_ *v1.Pod, c *v1.Container) { c.Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}} },
		"claim request": func(_ *v1.Pod, c *v1.Container) {
			c.Resources.Claims = []v1.ResourceClaim{{Name: "gpu", Request: "one"}}
		},
		"parts moved over": func(p *v1.Pod, _ *v1.Container) { p.Name, p.Namespace = "we", "bshop" },
	} {
		pod := base.DeepCopy()
		change(pod, &pod.Spec.Containers[0])
		key := keyOf(pod)
		assert.Empty(t, seen[key], "the key after a change of %s", what)
		seen[key] = what
	}
	unrelated := base.DeepCopy()
	unrelated.Labels = map[string]string{"a": "b"}
	unrelated.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A"}}
	assert.Equal(t, keyOf(base), keyOf(unrelated))
}
