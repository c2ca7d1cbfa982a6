// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Life is what an instance of a container does. In words, separated by spaces:
//
//	sleep=D  it runs so long
//	exit=N   and then exits with this code; without, it runs until it is stopped
//	needs=S  it does so only while the dependency S is away, and from when that
//	         goes; otherwise it runs until it is stopped
//	term=D   it takes so long to end when it is stopped
type Life struct {
	Sleep time.Duration
	// Exits is whether it ends by itself, with Code.
	Exits bool
	Code  int32
	Needs string
	Term  time.Duration
}

// ParseLife reads a life. An empty one is to run until it is stopped.
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
			err = fmt.Errorf("there is no word %q", name)
		}
		if err != nil {
			return Life{}, fmt.Errorf("life %q: %w", text, err)
		}
	}
	if l.Needs != "" && !l.Exits {
		return Life{}, fmt.Errorf("life %q: needs without exit", text)
	}
	return l, nil
}

// lifeOf returns which of the lives instance n has, counted from 0.
func lifeOf(lives []string, n int) (Life, error) {
	if len(lives) == 0 {
		return Life{}, nil
	}
	return ParseLife(lives[min(n, len(lives)-1)])
}
