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

import "time"

// CreatedBefore reports whether the container of s was created before that of
// other, if they have the same name. It also orders the containers of a whole pod.
//
// The restart count of a new container is higher than that of each container which
// the runtime still has. The time of creation may be lower, because the clock was
// set back. Upstream compares only the times (kubernetes/kubernetes#83050). A
// runtime that is killed while it creates a container may report no time. As
// upstream, such a container is the oldest one.
func (s *Status) CreatedBefore(other *Status) bool {
	if s.RestartCount != other.RestartCount && s.hasCreatedAt() && other.hasCreatedAt() {
		return s.RestartCount < other.RestartCount
	}
	return s.CreatedAt.Before(other.CreatedAt)
}

func (s *Status) hasCreatedAt() bool { return s.CreatedAt.After(time.Unix(0, 0)) }
