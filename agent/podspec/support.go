// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Support lists the fields of a pod that a runtime supports, in addition to the fields
// that the agent handles.
//
// The name of a field has no indexes: "spec.containers.image". It includes all fields
// below it that are not listed themselves. spec.containers includes spec.initContainers.
type Support struct {
	// Name is the name of the runtime in messages.
	Name string
	// Honored lists the fields that have their documented effect.
	Honored []string
	// NeedsCommand is true for a runtime without images: every container needs a command.
	NeedsCommand bool
}

// honoredByAgent lists the fields that the agent handles.
var honoredByAgent = []string{
	"spec.restartPolicy",
	"spec.terminationGracePeriodSeconds",
	"spec.activeDeadlineSeconds",
	"spec.enableServiceLinks", // No services exist, so there are no links.
	"spec.containers.name",
	"spec.containers.command",
	"spec.containers.args",
	"spec.containers.workingDir",
	"spec.containers.env.name",
	"spec.containers.env.value",
	"spec.containers.env.valueFrom",
	"spec.containers.envFrom",
	"spec.containers.ports.name",
	"spec.containers.ports.containerPort",
	"spec.containers.ports.protocol",
	"spec.containers.restartPolicy",
	"spec.containers.restartPolicyRules",
	"spec.containers.lifecycle.postStart",
	"spec.containers.lifecycle.preStop.exec",
	"spec.containers.lifecycle.preStop.httpGet",
	"spec.containers.lifecycle.preStop.sleep",
	"spec.containers.livenessProbe",
	"spec.containers.readinessProbe",
	"spec.containers.startupProbe",
	"spec.containers.volumeMounts.name",
	"spec.containers.volumeMounts.mountPath",
	"spec.containers.volumeMounts.subPath",
	"spec.containers.volumeMounts.subPathExpr",
	"spec.volumes.name",
	"spec.volumes.configMap",
	"spec.volumes.downwardAPI",
	"spec.volumes.projected.defaultMode",
	"spec.volumes.projected.sources.configMap",
	"spec.volumes.projected.sources.downwardAPI",
	"spec.volumes.projected.sources.secret",
	"spec.volumes.secret",
}

// refusedByAgent maps fields that must not be ignored to the reason why the agent does
// not support them. The Honored fields of a runtime take precedence.
var refusedByAgent = map[string]string{
	"spec.ephemeralContainers":                      "may only be added to a running pod",
	"spec.containers.env.valueFrom.fileKeyRef":      "files of variables are not supported: set value",
	"spec.os.name":                                  "containers are Linux processes",
	"spec.schedulingGates":                          "a pod with scheduling gates is not started: remove them",
	"spec.containers.stdin":                         "nothing can be attached, and a shell would exit at once: use a command that waits",
	"spec.containers.volumeDevices":                 "block devices are not supported: use volumeMounts and an emptyDir volume",
	"spec.containers.lifecycle.postStart.tcpSocket": "a hook cannot use tcpSocket, in the kubelet either",
	"spec.containers.lifecycle.preStop.tcpSocket":   "a hook cannot use tcpSocket, in the kubelet either",
	"spec.containers.lifecycle.stopSignal":          "containers are stopped with SIGTERM: remove it",
}

// noEffect maps fields to values that change nothing, such as the values that an API
// server sets in every pod. A warning does not list fields with these values.
var noEffect = map[string]any{
	"spec.automountServiceAccountToken":              false,
	"spec.dnsPolicy":                                 string(v1.DNSClusterFirst),
	"spec.os.name":                                   string(v1.Linux),
	"spec.preemptionPolicy":                          string(v1.PreemptLowerPriority),
	"spec.priority":                                  int64(0),
	"spec.schedulerName":                             v1.DefaultSchedulerName,
	"spec.serviceAccount":                            "default",
	"spec.serviceAccountName":                        "default",
	"spec.containers.lifecycle.stopSignal":           string(v1.SIGTERM),
	"spec.containers.terminationMessagePath":         v1.TerminationMessagePathDefault,
	"spec.containers.terminationMessagePolicy":       string(v1.TerminationMessageReadFile),
	"spec.containers.volumeMounts.mountPropagation":  string(v1.MountPropagationNone),
	"spec.containers.volumeMounts.recursiveReadOnly": string(v1.RecursiveReadOnlyDisabled),
	"spec.volumes.emptyDir.medium":                   string(v1.StorageMediumDefault),
}

// sorter sorts the fields of a spec into honored, refused and ignored fields.
type sorter struct {
	honored map[string]bool
	refused map[string]string
	// parents is the set of fields that have entries for fields below them.
	parents map[string]bool

	// earlier has the errors of other checks. Their fields are not listed as ignored.
	earlier field.ErrorList
	errs    field.ErrorList
	// ignored maps the names of the fields without effect to their paths.
	ignored map[string][]string
}

// check returns an error for each refused field of a spec, and a warning that lists the
// fields without effect. The warning leaves out fields for which errs has an error.
func (s Support) check(spec map[string]any, errs field.ErrorList) (warnings []string, refused field.ErrorList) {
	f := sorter{honored: map[string]bool{}, refused: maps.Clone(refusedByAgent), parents: map[string]bool{}, earlier: errs, ignored: map[string][]string{}}
	for _, name := range slices.Concat(honoredByAgent, s.Honored) {
		f.honored[name] = true
	}
	for _, name := range s.Honored {
		delete(f.refused, name)
	}
	names := slices.Concat(slices.Collect(maps.Keys(f.honored)), slices.Collect(maps.Keys(f.refused)), slices.Collect(maps.Keys(noEffect)))
	for _, name := range names {
		for i, r := range name {
			if r == '.' {
				f.parents[name[:i]] = true
			}
		}
	}
	f.sort(spec, "spec", field.NewPath("spec"), false)
	if len(f.ignored) == 0 {
		return nil, f.errs
	}
	var ignored []string
	for _, name := range slices.Sorted(maps.Keys(f.ignored)) {
		ignored = append(ignored, onePath(f.ignored[name]))
	}
	return []string{fmt.Sprintf("not honored by the %s runtime: %s", s.Name, strings.Join(ignored, ", "))}, f.errs
}

// sort sorts the value of a field. honored reports whether a field above it is honored.
func (f *sorter) sort(value any, name string, path *field.Path, honored bool) {
	entry := name // The name in the lists.
	if rest, ok := strings.CutPrefix(name, "spec.initContainers"); ok {
		entry = "spec.containers" + rest
	}
	if list, ok := value.([]any); ok && f.parents[entry] {
		for i, item := range list {
			f.sort(item, name, path.Index(i), honored)
		}
		return
	}
	if v := reflect.ValueOf(value); !v.IsValid() || (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0 {
		return // The field is not set.
	}
	if none, ok := noEffect[entry]; ok && value == none {
		return
	}
	if reason, ok := f.refused[entry]; ok {
		f.errs = append(f.errs, field.Forbidden(path, reason))
		return
	}
	honored = honored || f.honored[entry]
	if object, ok := value.(map[string]any); ok && f.parents[entry] {
		for _, key := range slices.Sorted(maps.Keys(object)) {
			f.sort(object[key], name+"."+key, path.Child(key), honored)
		}
		return
	}
	hasError := slices.ContainsFunc(f.earlier, func(err *field.Error) bool {
		rest, ok := strings.CutPrefix(err.Field, path.String())
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
	if !honored && !hasError {
		f.ignored[name] = append(f.ignored[name], path.String())
	}
}

// onePath merges the paths of one field. It replaces an index in which they differ with *.
func onePath(paths []string) string {
	elements := strings.Split(paths[0], ".")
	for _, path := range paths[1:] {
		for i, element := range strings.Split(path, ".") {
			if element != elements[i] {
				elements[i] = element[:strings.IndexByte(element, '[')] + "[*]"
			}
		}
	}
	return strings.Join(elements, ".")
}
