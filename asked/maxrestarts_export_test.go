// SPDX-License-Identifier: Apache-2.0

package asked

// Len returns of how many pods l knows.
func (l *Limits) Len() int { return len(l.pods) }
