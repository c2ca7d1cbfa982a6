// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Default sets the defaults of an API server on which the agent or a runtime relies
// (SetDefaults functions of pkg/apis/core/v1). It also sets the namespace, the UID, and
// the name if there is only generateName. The UID and the name come from a hash of the
// manifest, so they are the same in every run, as the UID of a static pod.
func Default(pod *v1.Pod) {
	pod.Namespace = cmp.Or(pod.Namespace, metav1.NamespaceDefault)
	spec := &pod.Spec
	spec.RestartPolicy = cmp.Or(spec.RestartPolicy, v1.RestartPolicyAlways)
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](v1.DefaultTerminationGracePeriodSeconds)
	}
	for i := range spec.Volumes {
		if ptr.AllPtrFieldsNil(&spec.Volumes[i].VolumeSource) {
			spec.Volumes[i].EmptyDir = &v1.EmptyDirVolumeSource{}
		}
	}
	for _, c := range Containers(spec) {
		defaultContainer(c)
	}
	if pod.Name == "" && pod.GenerateName != "" {
		// The limits of an API server for generateName.
		const suffix, longest = 5, 63
		prefix := pod.GenerateName[:min(len(pod.GenerateName), longest-suffix)]
		pod.Name = prefix + rand.SafeEncodeString(hash(pod)[:suffix])
	}
	if pod.UID == "" {
		pod.UID = types.UID(hash(pod))
	}
}

// Containers iterates over the init containers and then the other containers of a pod, with
// their paths.
func Containers(spec *v1.PodSpec) iter.Seq2[*field.Path, *v1.Container] {
	return func(yield func(*field.Path, *v1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(field.NewPath("spec", "initContainers").Index(i), &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(field.NewPath("spec", "containers").Index(i), &spec.Containers[i]) {
				return
			}
		}
	}
}

// hash returns a hash of the pod's name, namespace and spec as 32 hexadecimal digits.
func hash(pod *v1.Pod) string {
	data, err := json.Marshal([]any{pod.Namespace, pod.Name, pod.Spec})
	utilruntime.Must(err)
	return fmt.Sprintf("%x", sha256.Sum256(data))[:32]
}

func defaultContainer(c *v1.Container) {
	c.ImagePullPolicy = cmp.Or(c.ImagePullPolicy, defaultPullPolicy(c.Image))
	for i := range c.Ports {
		c.Ports[i].Protocol = cmp.Or(c.Ports[i].Protocol, v1.ProtocolTCP)
	}
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		probe.PeriodSeconds = cmp.Or(probe.PeriodSeconds, 10)
		probe.TimeoutSeconds = cmp.Or(probe.TimeoutSeconds, 1)
		probe.SuccessThreshold = cmp.Or(probe.SuccessThreshold, 1)
		probe.FailureThreshold = cmp.Or(probe.FailureThreshold, 3)
		if get := probe.HTTPGet; get != nil {
			get.Path = cmp.Or(get.Path, "/")
			get.Scheme = cmp.Or(get.Scheme, v1.URISchemeHTTP)
		}
	}
}

// defaultPullPolicy returns Always for an image without a digest and with the tag latest,
// or without a tag.
func defaultPullPolicy(image string) v1.PullPolicy {
	name, digest, _ := strings.Cut(path.Base(image), "@")
	_, tag, tagged := strings.Cut(name, ":")
	if image != "" && (tag == "latest" || !tagged && digest == "") {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}
