// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"fmt"
	"strconv"
)

// JournalEvent is an event of a container, with the number of the start, counted
// from 1, and the time in seconds of the wall clock.
type JournalEvent struct {
	At        float64 `json:"at"`
	Container string  `json:"container"`
	Start     int     `json:"start"`
	Event     string  `json:"event"`
}

// ParseJournal parses the lines that actors wrote: time, container, number of the
// start, event. It ignores an incomplete last line.
func ParseJournal(data []byte) (journal []JournalEvent, err error) {
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		f := bytes.Fields(line)
		if len(f) != 4 {
			return nil, fmt.Errorf("line %d: %q has %d fields, not 4", len(journal)+1, line, len(f))
		}
		at, err := strconv.ParseFloat(string(f[0]), 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(journal)+1, err)
		}
		start, err := strconv.Atoi(string(f[2]))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(journal)+1, err)
		}
		journal = append(journal, JournalEvent{at, string(f[1]), start, string(f[3])})
	}
	return journal, nil
}
