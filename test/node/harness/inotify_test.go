// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInotify(t *testing.T) {
	assert.ErrorContains(t, CheckInotify(1<<20), "set sysctl fs.inotify.max_user_instances")
	assert.NoError(t, CheckInotify(1), "after a check that opened all")
}
