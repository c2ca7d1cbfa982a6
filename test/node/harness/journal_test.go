// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseJournal(t *testing.T) {
	got, err := ParseJournal([]byte("10.250000 main 1 start\n11.500000 main 1 exit:42\n12.0 oth"))
	want := []JournalEvent{{10.25, "main", 1, "start"}, {11.5, "main", 1, "exit:42"}}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("ParseJournal = %v, %v, want %v without the half line", got, err, want)
	}
	for _, bad := range []string{"10 main 1 start\nsoon main 1 start\n", "10 main 1 start\n11 main start\n", "10 main 1 start\n11 main one start\n"} {
		if _, err := ParseJournal([]byte(bad)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("ParseJournal(%q): error %v, want one that names line 2", bad, err)
		}
	}
}
