// SPDX-License-Identifier: Apache-2.0

package plan

import "fmt"

// most is how many entries a plan has at most.
const most = 100_000

var errTooLong = fmt.Errorf("the plan has more than %d lines: ask for less of the future, or for longer runs", most)
