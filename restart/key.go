// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Key returns the key of a container's back-off. It is a hash of the pod's name,
// namespace and UID, and of the container's name, image and resources. A change
// of image or resources therefore leads to another back-off: a new one, or the one
// that the container had with them before. The key is the same for
// semantically equal pods. It is the first half of a SHA-256 sum: tenants choose
// the input, and a pod must not be able to get the key of another pod. It
// corrects GetBackoffKey of pkg/kubelet/kuberuntime, which uses 64-bit FNV and
// hashes an address for some quantities.
func Key(pod *v1.Pod, container *v1.Container) string {
	hash := sha256.New()
	// The length before each part separates the parts.
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
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// canonical formats each quantity as a multiple of a power of ten, regardless of
// its unit and internal form.
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
