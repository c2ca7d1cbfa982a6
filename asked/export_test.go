// SPDX-License-Identifier: Apache-2.0

package asked

// Len returns of how many pods r knows.
func (r *Restarts) Len() int { return len(r.pods) }
