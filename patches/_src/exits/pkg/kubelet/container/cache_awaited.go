/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package container

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// IsAwaited reports whether a call of GetNewerThan waits, for any pod. It is true if that
// is unknown, for a cache that is not from NewCache.
func IsAwaited(c interface {
	GetNewerThan(types.UID, time.Time) (*PodStatus, error)
}) bool {
	known, ok := c.(*cache)
	if !ok {
		return true
	}
	known.lock.RLock()
	defer known.lock.RUnlock()
	return len(known.subscribers) > 0
}
