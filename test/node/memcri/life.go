// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Life is the behavior of an instance of a container. Its text form is a list of words,
// separated by spaces:
//
//	sleep=D  it runs for D
//	exit=N   and then exits with code N; without it, the instance runs until stopped
//	needs=S  it exits only without the dependency S: after sleep if S is absent at the
//	         start, and at once when S becomes absent
//	term=D   it takes D to exit when it is stopped
type Life struct {
	Sleep time.Duration
	// Exits reports whether it exits by itself, with Code.
	Exits bool
	Code  int32
	Needs string
	Term  time.Duration
}

// ParseLife parses a life. An empty one runs until it is stopped.
func ParseLife(text string) (l Life, err error) {
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "sleep":
			l.Sleep, err = time.ParseDuration(value)
		case "exit":
			var code int64
			code, err = strconv.ParseInt(value, 10, 32)
			l.Exits, l.Code = true, int32(code)
		case "needs":
			l.Needs = value
		case "term":
			l.Term, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown word %q", name)
		}
		if err != nil {
			return Life{}, fmt.Errorf("life %q: %w", text, err)
		}
	}
	if l.Needs != "" && !l.Exits {
		return Life{}, fmt.Errorf("life %q: needs= requires exit=", text)
	}
	return l, nil
}

// lifeOf returns the life of instance n, counted from 0.
func lifeOf(lives []string, n int) (Life, error) {
	if len(lives) == 0 {
		return Life{}, nil
	}
	return ParseLife(lives[min(n, len(lives)-1)])
}
