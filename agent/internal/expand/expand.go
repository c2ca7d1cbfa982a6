// SPDX-License-Identifier: Apache-2.0

// Package expand expands references to environment variables, as
// third_party/forked/golang/expansion of Kubernetes does.
package expand

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Max limits the length of an expanded string, in bytes. It is the longest string that
// Linux passes to a program (MAX_ARG_STRLEN).
const Max = 128 << 10

// All expands each string. It does not change a string that would be longer than Max:
// Objects.Resolve of agent/manifest rejects such a string in a command.
func All(list []string, env []v1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for _, e := range env {
		if _, ok := values[e.Name]; !ok {
			values[e.Name] = e.Value
		}
	}
	expanded := make([]string, 0, len(list))
	for _, s := range list {
		if value, ok := String(s, values); ok {
			s = value
		}
		expanded = append(expanded, s)
	}
	return expanded
}

// String replaces $(NAME) with the value of the variable, and $$ with $, so $$(NAME)
// becomes $(NAME). A reference to an unknown variable is not changed. String returns
// false if the result is longer than Max.
func String(s string, values map[string]string) (string, bool) {
	var b strings.Builder
	closes := true // Whether s may have a closing parenthesis.
	for b.Len() <= Max {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			break
		}
		s = after
		if rest, ok := strings.CutPrefix(s, "$"); ok {
			b.WriteByte('$')
			s = rest
			continue
		}
		name, rest := "", ""
		if closes && strings.HasPrefix(s, "(") {
			name, rest, closes = strings.Cut(s[1:], ")")
		}
		if !closes || !strings.HasPrefix(s, "(") {
			b.WriteByte('$')
			continue
		}
		s = rest
		if value, ok := values[name]; ok {
			b.WriteString(value)
		} else {
			b.WriteString("$(" + name + ")")
		}
	}
	return b.String(), b.Len() <= Max
}
