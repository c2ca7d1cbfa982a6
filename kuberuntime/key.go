// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Key returns the key under which the back-off of a container is kept: a hash
// of the pod's name, namespace and UID and of the container's name, image and
// resources, so that a change of image or resources starts the back-off over.
// It is the same for semantically equal pods. It corrects GetBackoffKey of
// pkg/kubelet/kuberuntime, which for some quantities hashes an address.
func Key(pod *v1.Pod, container *v1.Container) string {
	hash := fnv.New64a()
	// The length before each part keeps parts from running into each other.
	add := func(parts ...string) {
		for _, part := range parts {
			fmt.Fprintf(hash, "%d/%s", len(part), part)
		}
	}
	add(pod.Name, pod.Namespace, string(pod.UID), container.Name, container.Image)
	add(canonical(container.Resources.Requests)...)
	add("limits")
	add(canonical(container.Resources.Limits)...)
	add("claims")
	claims := make([]string, 0, len(container.Resources.Claims))
	for _, claim := range container.Resources.Claims {
		claims = append(claims, claim.Name+"/"+claim.Request)
	}
	slices.Sort(claims)
	add(claims...)
	return strconv.FormatUint(hash.Sum64(), 16)
}

// canonical puts each quantity, whatever its unit and inner form, as a multiple
// of a power of ten.
func canonical(list v1.ResourceList) []string {
	out := make([]string, 0, len(list))
	for name, quantity := range list {
		// AsDec changes its receiver.
		q := quantity.DeepCopy()
		out = append(out, string(name)+"="+resource.NewDecimalQuantity(*q.AsDec(), resource.DecimalExponent).String())
	}
	slices.Sort(out)
	return out
}
