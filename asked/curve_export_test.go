// SPDX-License-Identifier: Apache-2.0

package asked

// Len returns of how many pods and keys c knows.
func (c *Curves) Len() (pods, rules int) { return len(c.pods), len(c.rules) }
