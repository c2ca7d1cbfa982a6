// SPDX-License-Identifier: Apache-2.0

// Package expand replaces references to environment variables, as
// third_party/forked/golang/expansion of Kubernetes does.
package expand

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// All is String for each of the strings.
func All(list []string, env []v1.EnvVar) []string {
	expanded := make([]string, 0, len(list))
	for _, s := range list {
		expanded = append(expanded, String(s, env))
	}
	return expanded
}

// String replaces $(NAME) by the variable's value. $$ stands for $, so that
// $$(NAME) is left as $(NAME); what names no variable stays as it is.
func String(s string, env []v1.EnvVar) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		s = after
		if rest, ok := strings.CutPrefix(s, "$"); ok {
			b.WriteByte('$')
			s = rest
			continue
		}
		rest, opened := strings.CutPrefix(s, "(")
		name, rest, closed := strings.Cut(rest, ")")
		if !opened || !closed {
			b.WriteByte('$')
			continue
		}
		s = rest
		if i := slices.IndexFunc(env, func(v v1.EnvVar) bool { return v.Name == name }); i >= 0 {
			b.WriteString(env[i].Value)
		} else {
			b.WriteString("$(" + name + ")")
		}
	}
}
