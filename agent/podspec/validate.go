// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Validate validates a pod after Default. It returns an error for each field on which the
// agent relies and that an API server or a kubelet would reject. It also returns an error
// for each field that the runtime must not ignore and does not support. The field paths
// are those of an API server. A warning lists the fields that have no effect.
//
// Unlike an API server, Validate rejects a negative grace period and, unless support is
// zero, a relative mount path, the mount path /, two spellings of the same mount path, and
// a probe port name that the container does not have. It does not validate restart policies
// and restart rules: see Validate of package restartrules.
//
// With the zero Support, which is for no runtime, it only returns the errors that every
// runtime has.
func Validate(pod *v1.Pod, support Support) (warnings []string, errs field.ErrorList) {
	// Default has set these values, and some runtimes do not honor them.
	withoutDefaults := pod.DeepCopy()
	for _, c := range Containers(&withoutDefaults.Spec) {
		if c.ImagePullPolicy == defaultPullPolicy(c.Image) {
			c.ImagePullPolicy = ""
		}
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(withoutDefaults)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	spec, _ := object["spec"].(map[string]any)
	v := validator{pod: pod, support: support, volumes: sets.New[string](), containers: sets.New[string]()}
	v.validatePod()
	delete(object, "status") // A container writes the message of its exit itself.
	v.validateText(object, nil)
	if support.Name == "" {
		return nil, v.errs
	}
	warnings, errs = support.check(spec, v.errs)
	return warnings, append(v.errs, errs...)
}

type validator struct {
	pod     *v1.Pod
	support Support
	// volumes and containers are the names found so far.
	volumes, containers sets.Set[string]
	errs                field.ErrorList
}

func (v *validator) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

// validateText adds an error for each text with a NUL. It ends each argument and each
// variable of a process.
func (v *validator) validateText(value any, path *field.Path) {
	switch value := value.(type) {
	case string:
		if strings.ContainsRune(value, 0) {
			v.add(field.Invalid(path, field.OmitValueType{}, "must not contain a NUL"))
		}
	case []any:
		for i, item := range value {
			v.validateText(item, path.Index(i))
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if strings.ContainsRune(key, 0) {
				v.add(field.Invalid(path, field.OmitValueType{}, "must have no name with a NUL"))
			}
			v.validateText(value[key], path.Child(key))
		}
	}
}

// invalid adds an error for each problem of a value.
func (v *validator) invalid(path *field.Path, value any, problems []string) {
	for _, problem := range problems {
		v.add(field.Invalid(path, value, problem))
	}
}

// seconds adds an error unless a number of seconds, or a threshold, is from minimum to
// math.MaxInt32.
func (v *validator) seconds(minimum, value int64, path *field.Path) {
	if value < minimum || value > math.MaxInt32 {
		v.add(field.Invalid(path, value, utilvalidation.InclusiveRangeError(int(minimum), math.MaxInt32)))
	}
}

// oneOf adds an error unless exactly one pointer of a union is set. A union is a struct of
// the API.
func (v *validator) oneOf(union any, path *field.Path) {
	var all, set []string
	value := reflect.ValueOf(union)
	for i := range value.NumField() {
		if f := value.Field(i); f.Kind() == reflect.Pointer {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			if all = append(all, name); !f.IsNil() {
				set = append(set, name)
			}
		}
	}
	switch {
	case len(set) == 0:
		v.add(field.Required(path, "must have one of "+strings.Join(all, ", ")))
	case len(set) > 1:
		v.add(field.Forbidden(path, "may have only one of "+strings.Join(set, ", ")))
	}
}

func (v *validator) validatePod() {
	metadata, spec, path := field.NewPath("metadata"), &v.pod.Spec, field.NewPath("spec")
	v.add(apivalidation.ValidateObjectMeta(&v.pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadata)...)
	// The UID is part of the name of a directory.
	v.invalid(metadata.Child("uid"), string(v.pod.UID), utilvalidation.IsDNS1123Label(strings.ToLower(string(v.pod.UID))))
	v.seconds(0, ptr.Deref(spec.TerminationGracePeriodSeconds, 0), path.Child("terminationGracePeriodSeconds"))
	v.seconds(1, ptr.Deref(spec.ActiveDeadlineSeconds, 1), path.Child("activeDeadlineSeconds"))
	if sc := spec.SecurityContext; sc != nil {
		path := path.Child("securityContext")
		v.validateIDs(sc.RunAsUser, sc.RunAsGroup, path)
		v.invalid(path.Child("fsGroup"), ptr.Deref(sc.FSGroup, 0), utilvalidation.IsValidGroupID(ptr.Deref(sc.FSGroup, 0)))
		for _, group := range sc.SupplementalGroups {
			v.invalid(path.Child("supplementalGroups"), group, utilvalidation.IsValidGroupID(group))
		}
	}
	for i, volume := range spec.Volumes {
		path := path.Child("volumes").Index(i)
		v.validateName(volume.Name, v.volumes, path.Child("name"))
		v.oneOf(volume.VolumeSource, path)
	}
	if len(spec.Containers) == 0 {
		v.add(field.Required(path.Child("containers"), "must have at least one container"))
	}
	for i := range spec.Containers {
		v.validateContainer(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.InitContainers {
		c, path := &spec.InitContainers[i], path.Child("initContainers").Index(i)
		v.validateContainer(c, path)
		if ptr.Deref(c.RestartPolicy, "") != v1.ContainerRestartPolicyAlways && (c.Lifecycle != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil) {
			v.add(field.Forbidden(path, "an init container may have hooks and probes only with restartPolicy: Always"))
		}
	}
}

// isAPIAccess reports whether a volume is the token volume that an API server adds to
// every pod. The volume has no use without a cluster.
func isAPIAccess(volume *v1.Volume) bool {
	return volume.Projected != nil && strings.HasPrefix(volume.Name, "kube-api-access-")
}

// validateName validates a name, which must differ from the others, and adds it to them.
func (v *validator) validateName(name string, others sets.Set[string], path *field.Path) {
	switch {
	case name == "":
		v.add(field.Required(path, ""))
	case others.Has(name):
		v.add(field.Duplicate(path, name))
	default:
		v.invalid(path, name, utilvalidation.IsDNS1123Label(name))
	}
	others.Insert(name)
}

func (v *validator) validateContainer(c *v1.Container, path *field.Path) {
	v.validateName(c.Name, v.containers, path.Child("name"))
	switch {
	case v.support.NeedsCommand && len(c.Command) == 0:
		v.add(field.Required(path.Child("command"), fmt.Sprintf("the %s runtime uses no image: set a command of this machine", v.support.Name)))
	case v.support.Name != "" && !v.support.NeedsCommand && c.Image == "":
		v.add(field.Required(path.Child("image"), ""))
	}
	if sc := c.SecurityContext; sc != nil {
		v.validateIDs(sc.RunAsUser, sc.RunAsGroup, path.Child("securityContext"))
	}
	v.validateEnv(c, path)
	v.validateMounts(c.VolumeMounts, path.Child("volumeMounts"))
	if c.Lifecycle != nil {
		v.validateHook(c.Lifecycle.PostStart, path.Child("lifecycle", "postStart"))
		v.validateHook(c.Lifecycle.PreStop, path.Child("lifecycle", "preStop"))
	}
	v.validateProbe(c.LivenessProbe, c.Ports, path.Child("livenessProbe"))
	v.validateProbe(c.ReadinessProbe, c.Ports, path.Child("readinessProbe"))
	v.validateProbe(c.StartupProbe, c.Ports, path.Child("startupProbe"))
}

// validateIDs validates a user and a group. The kernel would interpret -1 as the user of
// the agent and 1<<32 as root.
func (v *validator) validateIDs(user, group *int64, path *field.Path) {
	v.invalid(path.Child("runAsUser"), ptr.Deref(user, 0), utilvalidation.IsValidUserID(ptr.Deref(user, 0)))
	v.invalid(path.Child("runAsGroup"), ptr.Deref(group, 0), utilvalidation.IsValidGroupID(ptr.Deref(group, 0)))
}

func (v *validator) validateEnv(c *v1.Container, path *field.Path) {
	for i, env := range c.Env {
		path := path.Child("env").Index(i)
		if env.Name == "" {
			v.add(field.Required(path.Child("name"), ""))
		} else {
			v.invalid(path.Child("name"), env.Name, utilvalidation.IsRelaxedEnvVarName(env.Name))
		}
		if env.ValueFrom == nil {
			continue
		}
		path = path.Child("valueFrom")
		if v.oneOf(*env.ValueFrom, path); env.Value != "" {
			v.add(field.Forbidden(path, "may not be set together with value"))
		}
		if ref := env.ValueFrom.FieldRef; ref != nil {
			if _, err := fieldValue(v.pod, ref.FieldPath, ""); err != nil {
				v.add(field.Invalid(path.Child("fieldRef", "fieldPath"), ref.FieldPath, err.Error()))
			}
		}
	}
	for i, from := range c.EnvFrom {
		v.oneOf(from, path.Child("envFrom").Index(i))
	}
}

func (v *validator) validateMounts(mounts []v1.VolumeMount, fldPath *field.Path) {
	paths := sets.New[string]()
	for i, mount := range mounts {
		mountPath := fldPath.Index(i).Child("mountPath")
		if !v.volumes.Has(mount.Name) {
			v.add(field.NotFound(fldPath.Index(i).Child("name"), mount.Name))
		}
		clean := mount.MountPath // An API server takes /a and /a/ for two paths.
		if v.support.Name != "" {
			clean = path.Clean(clean)
		}
		switch {
		case v.support.Name != "" && (!path.IsAbs(clean) || clean == "/"):
			v.add(field.Invalid(mountPath, mount.MountPath, "must be an absolute path below /"))
		case paths.Has(clean):
			v.add(field.Duplicate(mountPath, mount.MountPath))
		}
		paths.Insert(clean)
	}
}

func (v *validator) validateHook(hook *v1.LifecycleHandler, path *field.Path) {
	if hook == nil {
		return
	}
	v.oneOf(*hook, path)
	v.validateExec(hook.Exec, path.Child("exec"))
	grace := ptr.Deref(v.pod.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	if hook.Sleep != nil && (hook.Sleep.Seconds < 0 || hook.Sleep.Seconds > max(grace, 0)) {
		v.add(field.Invalid(path.Child("sleep", "seconds"), hook.Sleep.Seconds, fmt.Sprintf("must be between 0 and terminationGracePeriodSeconds, %d", grace)))
	}
}

func (v *validator) validateExec(exec *v1.ExecAction, path *field.Path) {
	if exec != nil && len(exec.Command) == 0 {
		v.add(field.Required(path.Child("command"), ""))
	}
}

func (v *validator) validateProbe(probe *v1.Probe, ports []v1.ContainerPort, path *field.Path) {
	if probe == nil {
		return
	}
	v.oneOf(probe.ProbeHandler, path)
	v.validateExec(probe.Exec, path.Child("exec"))
	if probe.HTTPGet != nil {
		v.validatePort(probe.HTTPGet.Port, ports, path.Child("httpGet", "port"))
	}
	if probe.TCPSocket != nil {
		v.validatePort(probe.TCPSocket.Port, ports, path.Child("tcpSocket", "port"))
	}
	v.seconds(0, int64(probe.InitialDelaySeconds), path.Child("initialDelaySeconds"))
	v.seconds(1, int64(probe.PeriodSeconds), path.Child("periodSeconds"))
	v.seconds(1, int64(probe.TimeoutSeconds), path.Child("timeoutSeconds"))
	v.seconds(1, int64(probe.SuccessThreshold), path.Child("successThreshold"))
	v.seconds(1, int64(probe.FailureThreshold), path.Child("failureThreshold"))
	v.seconds(1, ptr.Deref(probe.TerminationGracePeriodSeconds, 1), path.Child("terminationGracePeriodSeconds"))
}

// validatePort validates the port of a probe: a number, or the name of a port of the
// container.
func (v *validator) validatePort(port intstr.IntOrString, ports []v1.ContainerPort, path *field.Path) {
	if port.Type == intstr.Int {
		v.invalid(path, port.IntVal, utilvalidation.IsValidPortNum(int(port.IntVal)))
	} else if v.support.Name != "" && !slices.ContainsFunc(ports, func(p v1.ContainerPort) bool { return p.Name == port.StrVal && p.Name != "" }) {
		v.add(field.Invalid(path, port.StrVal, "must be a number or the name of a port of the container"))
	}
}
