// SPDX-License-Identifier: Apache-2.0

// Package expand expands references to environment variables, as
// third_party/forked/golang/expansion of Kubernetes does.
package expand

import (
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Max limits the length of an expanded string, in bytes. It is the longest string that
// Linux passes to a program (MAX_ARG_STRLEN).
const Max = 128 << 10

// All expands each string. It does not change a string that would be longer than Max.
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

// reference matches $$, and $(NAME) or the rest of the string after a $( without an end.
var reference = regexp.MustCompile(`\$(?:\$|\([^)]*\)?)`)

// String replaces $(NAME) with the value of the variable, and $$ with $, so $$(NAME)
// becomes $(NAME). A reference to an unknown variable is not changed. String returns
// false if the result is longer than Max.
func String(s string, values map[string]string) (string, bool) {
	size := 0 // The sum of the values, which may be very long for a short s.
	s = reference.ReplaceAllStringFunc(s, func(match string) string {
		name, ok := strings.CutSuffix(match, ")")
		if !ok {
			return strings.ReplaceAll(match, "$$", "$")
		}
		value, ok := values[name[len("$("):]]
		if size += len(value); !ok || size > Max {
			return match
		}
		return value
	})
	return s, len(s) <= Max && size <= Max
}
