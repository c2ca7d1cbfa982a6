// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Life is the script of one instance of a container: it exits with Code after some time, or runs
// until it is stopped.
type Life struct {
	// Runs is true for an instance that does not exit by itself.
	Runs bool
	Code int32
	// After is the time for which the instance runs, or the parameter of the distribution Spread.
	After  time.Duration
	Spread Spread
	// Until is the longest time of a uniform distribution.
	Until time.Duration
}

// Spread is the distribution of the times for which instances run.
type Spread string

// The distributions. The mean of an exponential distribution is Life.After. A uniform distribution
// is from Life.After to Life.Until.
const (
	Fixed       Spread = ""
	Exponential Spread = "exp"
	Uniform     Spread = "uniform"
)

// Lives is the script of a container: the lives of its instances, in order. All instances after the
// last element repeat the last element.
type Lives []Life

// Longest limits the length of a plan and the times in a script.
const Longest = 365 * 24 * time.Hour

var spread = regexp.MustCompile(`^(exp|uniform)\(([^,()]+)(?:,([^,()]+))?\)$`)

// ParseLives parses a comma-separated list of lives, each "CODE@AFTER" or "runs". AFTER is a
// duration, exp(MEAN) or uniform(SHORTEST,LONGEST). An error names the invalid value and the valid
// ones.
func ParseLives(text string) (Lives, error) {
	var lives Lives
	for _, part := range splitLives(text) {
		life, err := parseLife(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		lives = append(lives, life)
	}
	return lives, nil
}

// splitLives splits at the commas outside of parentheses.
func splitLives(text string) (parts []string) {
	depth, from := 0, 0
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts, from = append(parts, text[from:i]), i+1
		}
	}
	return append(parts, text[from:])
}

func parseLife(text string) (l Life, err error) {
	if text == "runs" {
		return Life{Runs: true}, nil
	}
	code, after, ok := strings.Cut(text, "@")
	if !ok {
		return l, fmt.Errorf(`%q must be CODE@AFTER, such as 1@5s, or "runs"`, text)
	}
	n, err := strconv.ParseUint(code, 10, 8)
	if err != nil {
		return l, fmt.Errorf("%q: the exit code %q must be a number from 0 to 255", text, code)
	}
	l.Code = int32(n)
	first, second := after, ""
	if m := spread.FindStringSubmatch(after); m != nil {
		l.Spread, first, second = Spread(m[1]), m[2], m[3]
	}
	if l.After, err = parseTime(text, first); err != nil {
		return l, err
	}
	switch {
	case l.Spread == Uniform && second == "":
		return l, fmt.Errorf("%q: uniform has two times, as in uniform(1s,10s)", text)
	case l.Spread == Exponential && second != "":
		return l, fmt.Errorf("%q: exp has one time, the mean, as in exp(30s)", text)
	case l.Spread == Uniform:
		if l.Until, err = parseTime(text, second); err == nil && l.Until < l.After {
			err = fmt.Errorf("%q: %s is less than %s", text, second, first)
		}
	}
	return l, err
}

func parseTime(text, value string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(value))
	if err != nil || d < 0 || d > Longest {
		return 0, fmt.Errorf("%q: %q must be a duration from 0s to %v, such as 500ms, 5s or 2h", text, value, Longest)
	}
	return d, nil
}

// Of returns the life of instance n, counted from 0. It panics if l is empty.
func (l Lives) Of(n int) Life { return l[min(n, len(l)-1)] }

// Draw returns the time for which an instance runs. It uses r only if Spread is not Fixed, and then
// once.
func (l Life) Draw(r *rand.Rand) time.Duration {
	switch l.Spread {
	case Exponential:
		return time.Duration(min(r.ExpFloat64()*float64(l.After), float64(Longest)))
	case Uniform:
		return l.After + time.Duration(math.Round(r.Float64()*float64(l.Until-l.After)))
	}
	return l.After
}

// Mean returns the mean of the times for which instances run. Runs must be false.
func (l Life) Mean() time.Duration {
	if l.Spread == Uniform {
		return l.After + (l.Until-l.After)/2
	}
	return l.After
}

// String returns the life in the form that ParseLives accepts.
func (l Life) String() string {
	switch {
	case l.Runs:
		return "runs"
	case l.Spread == Exponential:
		return fmt.Sprintf("%d@exp(%v)", l.Code, l.After)
	case l.Spread == Uniform:
		return fmt.Sprintf("%d@uniform(%v,%v)", l.Code, l.After, l.Until)
	}
	return fmt.Sprintf("%d@%v", l.Code, l.After)
}

// String returns the lives in the form that ParseLives accepts.
func (l Lives) String() string {
	texts := make([]string, len(l))
	for i, life := range l {
		texts[i] = life.String()
	}
	return strings.Join(texts, ",")
}
