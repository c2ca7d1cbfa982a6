// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

// Support says which fields of a pod a runtime honours besides those that every
// runtime does.
//
// A field is written without indexes, as in "spec.containers.image", and stands
// for all below it that is not named itself. A field of containers is one of
// initContainers too.
type Support struct {
	// Name is what messages call the runtime.
	Name string
	// Honoured are fields that have their effect.
	Honoured []string
	// Refused has the reason for each field without which the pod would be another
	// one. It wins over Honoured.
	Refused map[string]string
	// NeedsCommand is for a runtime that has no image to take a command from.
	NeedsCommand bool
}

// Process is what the process runtime supports.
var Process = Support{Name: "process", NeedsCommand: true, Honoured: []string{
	"spec.hostNetwork", // The processes have that of the machine.
	// What of these cannot be had, process.Validate refuses.
	"spec.hostPID", "spec.hostIPC", "spec.hostname",
	"spec.securityContext.runAsUser", "spec.securityContext.runAsGroup", "spec.securityContext.runAsNonRoot",
	"spec.securityContext.supplementalGroups", "spec.securityContext.fsGroup",
	"spec.containers.securityContext.runAsUser", "spec.containers.securityContext.runAsGroup", "spec.containers.securityContext.runAsNonRoot",
	"spec.containers.securityContext.readOnlyRootFilesystem", "spec.containers.securityContext.privileged", "spec.containers.securityContext.capabilities",
	"spec.containers.securityContext.allowPrivilegeEscalation",
	"spec.containers.volumeMounts.readOnly", "spec.containers.volumeMounts.subPath", "spec.containers.volumeMounts.subPathExpr",
}}

// common is what all runtimes honour, or the agent itself. A runtime may honour
// what is refused here.
var common = Support{
	Honoured: []string{
		"spec.restartPolicy",
		"spec.terminationGracePeriodSeconds",
		"spec.activeDeadlineSeconds",
		"spec.enableServiceLinks", // There are no services.
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
	},
	Refused: map[string]string{
		"spec.ephemeralContainers":                      "only a pod that runs gets them",
		"spec.os.name":                                  "containers are Linux processes",
		"spec.schedulingGates":                          "a pod is not started as long as it has any: leave them out",
		"spec.containers.stdin":                         "there is nothing to attach, and a shell would exit at once: give it a command that waits",
		"spec.containers.volumeDevices":                 "there are no block devices: use volumeMounts and an emptyDir volume",
		"spec.containers.lifecycle.postStart.tcpSocket": "no tcpSocket is a hook, in the kubelet either",
		"spec.containers.lifecycle.preStop.tcpSocket":   "no tcpSocket is a hook, in the kubelet either",
		"spec.containers.lifecycle.stopSignal":          "containers are stopped with SIGTERM: leave it out",
	},
}

// without has values with which all is as without the field: what an API server
// writes into every pod, and what asks for nothing. A field that has entries
// below it is not named as a whole.
var without = map[string]any{
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

// sorter sorts the fields of a spec by what is made of them.
type sorter struct {
	honoured map[string]bool
	refused  map[string]string
	// within has the fields below which some have an entry of their own.
	within map[string]bool

	// said are the errors that there are already: a field is not named twice.
	said field.ErrorList
	errs field.ErrorList
	// idle has the paths of those that are set and not honoured, by the field.
	idle map[string][]string
}

// judge returns an error for each field of a spec that is refused, and one
// warning of all that are not honoured. It leaves out what errs are about.
func (s Support) judge(spec map[string]any, errs field.ErrorList) ([]validation.Warning, field.ErrorList) {
	f := sorter{honoured: map[string]bool{}, refused: maps.Clone(common.Refused), within: map[string]bool{}, said: errs, idle: map[string][]string{}}
	for _, name := range slices.Concat(common.Honoured, s.Honoured) {
		f.honoured[name] = true
	}
	for _, name := range s.Honoured {
		delete(f.refused, name)
	}
	maps.Copy(f.refused, s.Refused)
	names := slices.Concat(slices.Collect(maps.Keys(f.honoured)), slices.Collect(maps.Keys(f.refused)), slices.Collect(maps.Keys(without)))
	for _, name := range names {
		for i, r := range name {
			if r == '.' {
				f.within[name[:i]] = true
			}
		}
	}
	f.sort(spec, "spec", field.NewPath("spec"), false)
	if len(f.idle) == 0 {
		return nil, f.errs
	}
	var idle []string
	for _, name := range slices.Sorted(maps.Keys(f.idle)) {
		idle = append(idle, onePath(f.idle[name]))
	}
	return []validation.Warning{{Detail: fmt.Sprintf("not honoured by the %s runtime: %s", s.Name, strings.Join(idle, ", "))}}, f.errs
}

// sort sorts a value at a path, which is that of the field of this name.
// Honoured reports whether one above is.
func (f *sorter) sort(value any, name string, path *field.Path, honoured bool) {
	entry := entryOf(name)
	if list, ok := value.([]any); ok && f.within[entry] {
		for i, item := range list {
			f.sort(item, name, path.Index(i), honoured)
		}
		return
	}
	if v := reflect.ValueOf(value); !v.IsValid() || (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0 {
		return // It is not set.
	}
	if none, ok := without[entry]; ok && value == none {
		return
	}
	if reason, ok := f.refused[entry]; ok {
		if !slices.ContainsFunc(f.said, func(err *field.Error) bool { return err.Field == path.String() }) {
			f.errs = append(f.errs, field.Forbidden(path, reason))
		}
		return
	}
	honoured = honoured || f.honoured[entry]
	if object, ok := value.(map[string]any); ok && f.within[entry] {
		for _, key := range slices.Sorted(maps.Keys(object)) {
			f.sort(object[key], name+"."+key, path.Child(key), honoured)
		}
		return
	}
	said := slices.ContainsFunc(f.said, func(err *field.Error) bool {
		rest, ok := strings.CutPrefix(err.Field, path.String())
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
	if !honoured && !said {
		f.idle[name] = append(f.idle[name], path.String())
	}
}

// entryOf returns the name under which a field has its entry.
func entryOf(name string) string {
	if rest, ok := strings.CutPrefix(name, "spec.initContainers"); ok {
		return "spec.containers" + rest
	}
	return name
}

// onePath returns a path for those of one field: with * for an index in which
// they differ.
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
