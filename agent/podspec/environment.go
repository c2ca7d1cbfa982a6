// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/expand"
)

// maxEnvironment limits the size of all variables of a container, in bytes. It is the
// default limit of Linux.
const maxEnvironment = 2 << 20

// Environment returns the environment variables of a container, in the order of the
// spec. It resolves references to fields of the pod, and expands $(NAME) with the earlier
// variables. If a name has several values, the last one counts. It keeps the behavior of
// makeEnvironmentVariables of pkg/kubelet, except for services. It returns an error, which
// names the variable, for a source that Objects.Resolve should have resolved, for a value
// of more than 128 KiB or with a NUL, and for more than 2 MiB in total.
func Environment(pod *v1.Pod, c *v1.Container, podIP string) ([]v1.EnvVar, error) {
	var names []string
	values, size := map[string]string{}, 0
	for _, e := range c.Env {
		value, ok := expand.String(e.Value, values)
		if !ok {
			return nil, fmt.Errorf("env %s: the value with all references expanded is more than %d KiB", e.Name, expand.Max>>10)
		}
		if source := e.ValueFrom; source != nil && e.Value == "" {
			if source.FieldRef == nil {
				return nil, fmt.Errorf("env %s: valueFrom is not resolved", e.Name)
			}
			var err error
			if value, err = fieldValue(pod, source.FieldRef.FieldPath, podIP); err != nil {
				return nil, fmt.Errorf("env %s: %w", e.Name, err)
			}
		}
		if strings.ContainsRune(e.Name+value, 0) {
			return nil, fmt.Errorf("env %.64q: must not contain a NUL", e.Name)
		}
		old, known := values[e.Name]
		if !known {
			names = append(names, e.Name)
		}
		values[e.Name] = value
		if size += len(e.Name) + len(value) - len(old); size > maxEnvironment {
			return nil, fmt.Errorf("env %s: the variables up to this one are more than %d MiB", e.Name, maxEnvironment>>20)
		}
	}
	var env []v1.EnvVar
	for _, name := range names {
		env = append(env, v1.EnvVar{Name: name, Value: values[name]})
	}
	return env, nil
}

// fieldValue keeps the behavior of podFieldSelectorRuntimeValue of pkg/kubelet and,
// for all labels or annotations, of ExtractFieldPathAsString of pkg/fieldpath.
func fieldValue(pod *v1.Pod, fieldPath, podIP string) (string, error) {
	switch fieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		host, _ := os.Hostname()
		return cmp.Or(pod.Spec.NodeName, strings.ToLower(host)), nil
	case "spec.serviceAccountName":
		return cmp.Or(pod.Spec.ServiceAccountName, "default"), nil
	case "status.podIP", "status.podIPs":
		return podIP, nil
	case "status.hostIP", "status.hostIPs":
		host, err := utilnet.ChooseHostInterface() // As the kubelet.
		if err != nil {
			return podIP, nil // The machine has no network.
		}
		return host.String(), nil
	}
	if path, ok := strings.CutSuffix(fieldPath, "']"); ok {
		if key, ok := strings.CutPrefix(path, "metadata.labels['"); ok && isQualifiedName(key) {
			return pod.Labels[key], nil
		}
		// The prefix of an annotation may have uppercase letters.
		if key, ok := strings.CutPrefix(path, "metadata.annotations['"); ok && isQualifiedName(strings.ToLower(key)) {
			return pod.Annotations[key], nil
		}
	}
	return "", fmt.Errorf("fieldPath %q: must be one of metadata.{name,namespace,uid,labels,annotations}, metadata.labels['KEY'], "+
		"metadata.annotations['KEY'], spec.{nodeName,serviceAccountName}, status.{hostIP,hostIPs,podIP,podIPs}", fieldPath)
}

func formatMap(m map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%q\n", key, m[key])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func isQualifiedName(key string) bool {
	return len(content.IsLabelKey(key)) == 0
}

// Command returns the command and the arguments of a container with $(NAME) expanded. It
// returns an empty slice if both come from the image.
func Command(c *v1.Container, env []v1.EnvVar) []string {
	return Expand(slices.Concat(c.Command, c.Args), env)
}

// Expand replaces $(NAME) with the value of the variable in each string, as the kubelet
// does in command and args. It replaces $$ with $, so $$(NAME) becomes $(NAME). It does
// not change a reference to an unknown variable, or a string that would be longer than
// 128 KiB. Objects.Resolve rejects such a string in a command.
func Expand(list []string, env []v1.EnvVar) []string { return expand.All(list, env) }
