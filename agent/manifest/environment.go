// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/expand"
)

// maxEnvironment is how much all variables of a container may be together: what
// Linux passes to a program by default.
const maxEnvironment = 2 << 20

// Environment returns the environment variables that the pod sets for a
// container: their sources resolved and $(NAME) expanded with the variables
// before, each name once with its last value. A variable whose source is missing
// and optional is left out. An error names the variable, and is for a source that
// Validate refuses, for a value of more than 128 KiB and for more than 2 MiB in
// all. It does what makeEnvironmentVariables of pkg/kubelet does, but for
// services, and in the order of the spec.
func Environment(pod *v1.Pod, c *v1.Container, podIP string) ([]v1.EnvVar, error) {
	var names []string
	values, size := map[string]string{}, 0
	for _, e := range c.Env {
		value, ok := expand.String(e.Value, values)
		if !ok {
			return nil, fmt.Errorf("env %s: its value is more than %d KiB with all references expanded", e.Name, expand.Max>>10)
		}
		if source := e.ValueFrom; source != nil && e.Value == "" {
			if isOptional(source) {
				continue
			}
			if source.FieldRef == nil {
				return nil, fmt.Errorf("env %s: only fieldRef is known as a source", e.Name)
			}
			var err error
			if value, err = fieldValue(pod, source.FieldRef.FieldPath, podIP); err != nil {
				return nil, fmt.Errorf("env %s: %w", e.Name, err)
			}
		}
		old, known := values[e.Name]
		if !known {
			names = append(names, e.Name)
		}
		values[e.Name] = value
		if size += len(e.Name) + len(value) - len(old); size > maxEnvironment {
			return nil, fmt.Errorf("env %s: with it there are more than %d MiB of variables", e.Name, maxEnvironment>>20)
		}
	}
	var env []v1.EnvVar
	for _, name := range names {
		env = append(env, v1.EnvVar{Name: name, Value: values[name]})
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

// fieldValue is podFieldSelectorRuntimeValue of pkg/kubelet, for fieldPaths.
func fieldValue(pod *v1.Pod, fieldPath, podIP string) (string, error) {
	switch fieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "status.podIP":
		return podIP, nil
	}
	if path, ok := strings.CutSuffix(fieldPath, "']"); ok {
		if key, ok := strings.CutPrefix(path, "metadata.labels['"); ok && isQualifiedName(key) {
			return pod.Labels[key], nil
		}
		// Only here the prefix may have capitals.
		if key, ok := strings.CutPrefix(path, "metadata.annotations['"); ok && isQualifiedName(strings.ToLower(key)) {
			return pod.Annotations[key], nil
		}
	}
	return "", fmt.Errorf("fieldPath %q: must be one of %s", fieldPath, strings.Join(fieldPaths, ", "))
}

func isQualifiedName(key string) bool {
	return len(content.IsLabelKey(key)) == 0
}

// Command returns the command and the arguments of a container with $(NAME)
// expanded. It is empty where both are the image's.
func Command(c *v1.Container, env []v1.EnvVar) []string {
	return Expand(slices.Concat(c.Command, c.Args), env)
}

// Expand replaces $(NAME) by the variable's value in each string, as the kubelet does
// in command and args. $$ stands for $, so that $$(NAME) is left as $(NAME); what
// names no variable stays as it is, and so does a string that would become longer
// than 128 KiB, which Validate refuses in a command.
func Expand(list []string, env []v1.EnvVar) []string { return expand.All(list, env) }
