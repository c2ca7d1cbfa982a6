// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// Environment returns the environment variables that the pod sets for a
// container: their sources resolved and $(NAME) expanded with the variables
// before, each name once with its last value. A variable whose source is missing
// and optional is left out. An error names the variable and is for a source that
// Validate refuses. It does what makeEnvironmentVariables of pkg/kubelet does,
// but for services, and in the order of the spec.
func Environment(pod *v1.Pod, c *v1.Container, podIP string) ([]v1.EnvVar, error) {
	var env []v1.EnvVar
	for _, e := range c.Env {
		value := expand(e.Value, env)
		if source := e.ValueFrom; source != nil && e.Value == "" {
			if isOptional(source) {
				continue
			}
			if source.FieldRef == nil {
				return nil, fmt.Errorf("env %s: only fieldRef is known as a source", e.Name)
			}
			var err error
			if value, err = fieldValue(pod, source.FieldRef, podIP); err != nil {
				return nil, fmt.Errorf("env %s: %w", e.Name, err)
			}
		}
		if i := slices.IndexFunc(env, func(v v1.EnvVar) bool { return v.Name == e.Name }); i >= 0 {
			env[i].Value = value
			continue
		}
		env = append(env, v1.EnvVar{Name: e.Name, Value: value})
	}
	return env, nil
}

// isOptional tells whether a variable may be left out. A file's is not: another
// container may write it.
func isOptional(source *v1.EnvVarSource) bool {
	var optional *bool
	switch {
	case source.ConfigMapKeyRef != nil:
		optional = source.ConfigMapKeyRef.Optional
	case source.SecretKeyRef != nil:
		optional = source.SecretKeyRef.Optional
	}
	return optional != nil && *optional
}

// fieldPaths are the fields of a pod that an environment variable may have as
// its value.
var fieldPaths = []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels['KEY']", "metadata.annotations['KEY']", "status.podIP"}

var errFieldPath = errors.New("no such field that a variable may have as its value")

// fieldValue is podFieldSelectorRuntimeValue of pkg/kubelet, for fieldPaths.
func fieldValue(pod *v1.Pod, ref *v1.ObjectFieldSelector, podIP string) (string, error) {
	if version := cmp.Or(ref.APIVersion, "v1"); version != "v1" {
		return "", fmt.Errorf("fieldRef: apiVersion %q: must be v1", version)
	}
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "status.podIP":
		return podIP, nil
	}
	path, key, ok := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['")
	if ok && strings.HasSuffix(ref.FieldPath, "']") {
		var values map[string]string
		name := key
		switch path {
		case "metadata.labels":
			values = pod.Labels
		case "metadata.annotations":
			values = pod.Annotations
			name = strings.ToLower(key) // Keys of annotations may have capitals in their prefix.
		default:
			return "", fmt.Errorf("fieldPath %q: %w", ref.FieldPath, errFieldPath)
		}
		if problems := utilvalidation.IsQualifiedName(name); len(problems) > 0 {
			return "", fmt.Errorf("fieldPath %q: %s", ref.FieldPath, strings.Join(problems, "; "))
		}
		return values[key], nil
	}
	return "", fmt.Errorf("fieldPath %q: %w", ref.FieldPath, errFieldPath)
}

// Command returns the command and the arguments of a container with $(NAME)
// expanded. It is empty where both are the image's.
func Command(c *v1.Container, env []v1.EnvVar) []string {
	return Expand(slices.Concat(c.Command, c.Args), env)
}

// Expand replaces $(NAME) by the variable's value in each string. $$ stands for
// $, so that $$(NAME) is left as $(NAME); what names no variable stays as it is.
// It is what third_party/forked/golang/expansion does, which the kubelet uses for
// command and args.
func Expand(list []string, env []v1.EnvVar) []string {
	expanded := make([]string, 0, len(list))
	for _, s := range list {
		expanded = append(expanded, expand(s, env))
	}
	return expanded
}

func expand(s string, env []v1.EnvVar) string {
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
