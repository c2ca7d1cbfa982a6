// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"math"
	"path"
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

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/expand"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

// Validate returns errors for what an API server or a kubelet with the gates
// would refuse of a pod that Default was called with, as far as crashloop run
// makes use of it, and for what the runtime cannot do and the pod would not be the
// same without. A warning is about restart policies and rules that have no
// effect, or lists all fields that the runtime does not honour. The paths of
// fields are an API server's. Unlike that it refuses a mount path that is relative
// or "/", a negative grace period, and a probe of a port name that its container
// has not.
func Validate(pod *v1.Pod, gates restartpod.Gates, support Support) ([]validation.Warning, field.ErrorList) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(withoutDefaults(pod))
	if err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	spec, _ := object["spec"].(map[string]any)

	v := validator{pod: pod, support: support}
	v.validateMetadata()
	v.errs = append(v.errs, validation.ValidatePodRestartRules(&pod.Spec, field.NewPath("spec"), validation.RestartRuleOptions{Gates: gates})...)
	v.validateSpec(spec)
	var warnings []validation.Warning
	if len(v.errs) == 0 {
		warnings = validation.WarningsForPodRestartRules(&pod.Spec, field.NewPath("spec"), gates)
	}
	idle, errs := support.judge(spec, v.errs)
	return append(warnings, idle...), append(v.errs, errs...)
}

// withoutDefaults returns a copy of the pod without such values of Default as
// not every runtime honours.
func withoutDefaults(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if c := &containers[i]; c.ImagePullPolicy == defaultPullPolicy(c.Image) {
				c.ImagePullPolicy = ""
			}
		}
	}
	return pod
}

type validator struct {
	pod     *v1.Pod
	support Support
	// volumes are the names that mounts may have.
	volumes sets.Set[string]
	// containers are the names of those before.
	containers sets.Set[string]
	errs       field.ErrorList
}

func (v *validator) add(errs ...*field.Error) {
	v.errs = append(v.errs, errs...)
}

// invalid adds an error for each problem that there is with a value.
func (v *validator) invalid(path *field.Path, value any, problems []string) {
	for _, problem := range problems {
		v.add(field.Invalid(path, value, problem))
	}
}

// atLeast adds an error for a number that is lower.
func (v *validator) atLeast(least, value int64, path *field.Path) {
	if value < least {
		v.add(field.Invalid(path, value, fmt.Sprintf("must be at least %d", least)))
	}
}

func (v *validator) validateMetadata() {
	path := field.NewPath("metadata")
	v.add(apivalidation.ValidateObjectMeta(&v.pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, path)...)
	// It is part of the name of a folder.
	v.invalid(path.Child("uid"), string(v.pod.UID), utilvalidation.IsDNS1123Label(strings.ToLower(string(v.pod.UID))))
}

// validateSpec has the spec also as a map, which tells which fields are set.
func (v *validator) validateSpec(object map[string]any) {
	spec, path := &v.pod.Spec, field.NewPath("spec")
	if grace := spec.TerminationGracePeriodSeconds; grace != nil {
		v.atLeast(0, *grace, path.Child("terminationGracePeriodSeconds"))
	}
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		v.add(field.Invalid(path.Child("activeDeadlineSeconds"), *deadline, utilvalidation.InclusiveRangeError(1, math.MaxInt32)))
	}
	volumes, _ := object["volumes"].([]any)
	v.validateVolumes(volumes, path.Child("volumes"))

	if len(spec.Containers) == 0 {
		v.add(field.Required(path.Child("containers"), "a pod has at least one container that is no init container"))
	}
	v.containers = sets.New[string]()
	for i := range spec.Containers {
		v.validateContainer(&spec.Containers[i], false, path.Child("containers").Index(i))
	}
	for i := range spec.InitContainers {
		v.validateContainer(&spec.InitContainers[i], true, path.Child("initContainers").Index(i))
	}
}

func (v *validator) validateVolumes(objects []any, fldPath *field.Path) {
	v.volumes = sets.New[string]()
	for i := range v.pod.Spec.Volumes {
		volume, path := &v.pod.Spec.Volumes[i], fldPath.Index(i)
		v.validateName(volume.Name, v.volumes, path.Child("name"))

		object, _ := objects[i].(map[string]any)
		sources := slices.DeleteFunc(slices.Sorted(maps.Keys(object)), func(key string) bool { return key == "name" })
		switch {
		case len(sources) == 0:
			v.add(field.Required(path, "a volume has a source"))
		case len(sources) > 1:
			v.add(field.Forbidden(path, "a volume has one source, and this one "+strings.Join(sources, ", ")))
		}
	}
}

// isAPIAccess reports whether a volume is the one that an API server adds to every
// pod. Without a cluster there is nothing to use it for, and pods of kubectl get
// are to be of use.
func isAPIAccess(volume *v1.Volume) bool {
	return volume.Projected != nil && strings.HasPrefix(volume.Name, "kube-api-access-")
}

// validateName validates a name that is unique among others, and adds it to
// them.
func (v *validator) validateName(name string, others sets.Set[string], path *field.Path) {
	switch {
	case name == "":
		v.add(field.Required(path, "must be set"))
	case others.Has(name):
		v.add(field.Duplicate(path, name))
	default:
		v.invalid(path, name, utilvalidation.IsDNS1123Label(name))
	}
	others.Insert(name)
}

func (v *validator) validateContainer(c *v1.Container, init bool, path *field.Path) {
	v.validateName(c.Name, v.containers, path.Child("name"))
	switch {
	case v.support.NeedsCommand && len(c.Command) == 0:
		v.add(field.Required(path.Child("command"), fmt.Sprintf("the %s runtime has no image to take it from: set it to a program of this machine", v.support.Name)))
	case !v.support.NeedsCommand && c.Image == "":
		v.add(field.Required(path.Child("image"), "must be set"))
	}
	v.validateEnv(c, path)
	v.validateMounts(c.VolumeMounts, path.Child("volumeMounts"))
	if init && (c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways) {
		if c.Lifecycle != nil || c.LivenessProbe != nil || c.StartupProbe != nil {
			v.add(field.Forbidden(path, "an init container without restartPolicy: Always has no lifecycle and no probes"))
		}
		return
	}
	if c.Lifecycle != nil {
		v.validateHook(c.Lifecycle.PostStart, path.Child("lifecycle", "postStart"))
		v.validateHook(c.Lifecycle.PreStop, path.Child("lifecycle", "preStop"))
	}
	v.validateProbe(c.LivenessProbe, c.Ports, path.Child("livenessProbe"))
	v.validateProbe(c.StartupProbe, c.Ports, path.Child("startupProbe"))
}

func (v *validator) validateEnv(c *v1.Container, path *field.Path) {
	for i, env := range c.Env {
		path := path.Child("env").Index(i)
		if env.Name == "" {
			v.add(field.Required(path.Child("name"), "must be set"))
		} else {
			v.invalid(path.Child("name"), env.Name, utilvalidation.IsRelaxedEnvVarName(env.Name))
		}
		source := env.ValueFrom
		path = path.Child("valueFrom")
		if source == nil {
			continue
		}
		sources := 0
		for _, set := range []bool{source.FieldRef != nil, source.ResourceFieldRef != nil, source.ConfigMapKeyRef != nil, source.SecretKeyRef != nil} {
			if set {
				sources++
			}
		}
		switch {
		case env.Value != "":
			v.add(field.Forbidden(path, "may not be set where value is"))
		case source.FileKeyRef != nil:
			v.add(field.Forbidden(path.Child("fileKeyRef"), "no file of variables is read: set value"))
		case sources != 1:
			v.add(field.Invalid(path, sources, "must have one source"))
		case source.FieldRef != nil:
			if _, err := fieldValue(v.pod, source.FieldRef.FieldPath, ""); err != nil {
				v.add(field.Invalid(path.Child("fieldRef", "fieldPath"), source.FieldRef.FieldPath, err.Error()))
			}
		}
	}
	for i, from := range c.EnvFrom {
		if (from.ConfigMapRef == nil) == (from.SecretRef == nil) {
			v.add(field.Invalid(path.Child("envFrom").Index(i), from.Prefix, "must have one of configMapRef, secretRef"))
		}
	}
}

// validateExpansion returns an error for what the expansion of $(NAME) makes too
// long.
func validateExpansion(pod *v1.Pod, c *v1.Container, path *field.Path) (errs field.ErrorList) {
	env, err := Environment(pod, c, "")
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("env"), field.OmitValueType{}, err.Error()))
	}
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	for i, s := range slices.Concat(c.Command, c.Args) {
		at := path.Child("command").Index(i)
		if n := len(c.Command); i >= n {
			at = path.Child("args").Index(i - n)
		}
		if _, ok := expand.String(s, values); !ok {
			errs = append(errs, field.TooLong(at, "", expand.Max))
		}
	}
	return errs
}

func (v *validator) validateMounts(mounts []v1.VolumeMount, fldPath *field.Path) {
	paths := sets.New[string]()
	for i, mount := range mounts {
		name, mountPath := fldPath.Index(i).Child("name"), fldPath.Index(i).Child("mountPath")
		switch {
		case mount.Name == "":
			v.add(field.Required(name, "must be set"))
		case !v.volumes.Has(mount.Name):
			v.add(field.NotFound(name, mount.Name))
		}
		clean := path.Clean(mount.MountPath)
		switch {
		case mount.MountPath == "":
			v.add(field.Required(mountPath, "must be set"))
		case !path.IsAbs(clean) || clean == "/":
			v.add(field.Invalid(mountPath, mount.MountPath, "must be an absolute path below /"))
		case paths.Has(clean):
			v.add(field.Invalid(mountPath, mount.MountPath, "must be unique"))
		}
		paths.Insert(clean)
	}
}

func (v *validator) validateHook(hook *v1.LifecycleHandler, path *field.Path) {
	if hook == nil {
		return
	}
	v.validateHandlers(path, "exec, httpGet, sleep", hook.Exec != nil, hook.HTTPGet != nil, hook.Sleep != nil, hook.TCPSocket != nil)
	v.validateExec(hook.Exec, path.Child("exec"))
	if grace := v.pod.Spec.TerminationGracePeriodSeconds; hook.Sleep != nil && grace != nil && *grace >= 0 {
		if seconds := hook.Sleep.Seconds; seconds < 0 || seconds > *grace {
			v.add(field.Invalid(path.Child("sleep", "seconds"), seconds, fmt.Sprintf("must be between 0 and terminationGracePeriodSeconds, %d", *grace)))
		}
	}
}

// validateHandlers adds an error unless there is one handler.
func (v *validator) validateHandlers(path *field.Path, supported string, handlers ...bool) {
	n := 0
	for _, set := range handlers {
		if set {
			n++
		}
	}
	if n != 1 {
		v.add(field.Invalid(path, n, "must have one of "+supported))
	}
}

func (v *validator) validateExec(exec *v1.ExecAction, path *field.Path) {
	if exec != nil && len(exec.Command) == 0 {
		v.add(field.Required(path.Child("command"), "must be set"))
	}
}

func (v *validator) validateProbe(probe *v1.Probe, ports []v1.ContainerPort, path *field.Path) {
	if probe == nil {
		return
	}
	v.validateHandlers(path, "exec, grpc, httpGet, tcpSocket", probe.Exec != nil, probe.GRPC != nil, probe.HTTPGet != nil, probe.TCPSocket != nil)
	v.validateExec(probe.Exec, path.Child("exec"))
	if probe.HTTPGet != nil {
		v.validatePort(probe.HTTPGet.Port, ports, path.Child("httpGet", "port"))
	}
	if probe.TCPSocket != nil {
		v.validatePort(probe.TCPSocket.Port, ports, path.Child("tcpSocket", "port"))
	}
	v.atLeast(0, int64(probe.InitialDelaySeconds), path.Child("initialDelaySeconds"))
	v.atLeast(1, int64(probe.PeriodSeconds), path.Child("periodSeconds"))
	v.atLeast(1, int64(probe.TimeoutSeconds), path.Child("timeoutSeconds"))
	v.atLeast(1, int64(probe.FailureThreshold), path.Child("failureThreshold"))
	v.atLeast(1, ptr.Deref(probe.TerminationGracePeriodSeconds, 1), path.Child("terminationGracePeriodSeconds"))
}

// validatePort validates the port of a probe: a number, or one of the names of
// the container's ports.
func (v *validator) validatePort(port intstr.IntOrString, ports []v1.ContainerPort, path *field.Path) {
	if port.Type == intstr.Int {
		v.invalid(path, port.IntVal, utilvalidation.IsValidPortNum(int(port.IntVal)))
	} else if !slices.ContainsFunc(ports, func(p v1.ContainerPort) bool { return p.Name == port.StrVal && p.Name != "" }) {
		v.add(field.Invalid(path, port.StrVal, "must be a number or the name of one of the container's ports"))
	}
}
