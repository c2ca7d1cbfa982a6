// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestStarted(t *testing.T) {
	first := "1.000000 main 1 start\n1.500000 main 1 post-start\n"
	ended := first + "2.000000 main 1 term\n2.000000 main 1 exit:143\n"
	for name, tc := range map[string]struct {
		journal string
		want    bool
	}{
		"no start":                   {"", false},
		"only another container":     {"1.000000 other 1 start\n", false},
		"the start":                  {first, true},
		"the exit of another":        {first + "2.000000 other 1 exit:0\n", true},
		"a term that is ignored":     {first + "2.000000 main 1 term\n2.100000 main 1 alive\n", true},
		"the exit":                   {ended, false},
		"the exit and another start": {ended + "3.000000 other 1 start\n", false},
		"the next start":             {ended + "3.000000 main 2 start\n", true},
		"half a line":                {ended + "3.000000 main", false},
	} {
		assert.Equal(t, tc.want, started([]byte(tc.journal), "main"), name)
	}
}
