// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/expand"
	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
)

// Objects maps the kind, namespace and name of ConfigMaps and Secrets, such as "Secret
// shop/db", to their data.
type Objects map[string]map[string][]byte

// Add adds an object if it is a ConfigMap or a Secret, and reports whether it is one.
func (o Objects) Add(object apiruntime.Object) bool {
	data := map[string][]byte{}
	set := func(texts map[string]string, bytes map[string][]byte) {
		maps.Copy(data, bytes)
		for key, text := range texts {
			data[key] = []byte(text)
		}
	}
	switch object := object.(type) {
	case *v1.ConfigMap:
		set(object.Data, object.BinaryData)
		o[objectKey("ConfigMap", object.Namespace, object.Name)] = data
	case *v1.Secret:
		set(object.StringData, object.Data)
		o[objectKey("Secret", object.Namespace, object.Name)] = data
	default:
		return false
	}
	return true
}

func objectKey(kind, namespace, name string) string {
	return kind + " " + cmp.Or(namespace, "default") + "/" + name
}

// Files maps the names of a pod's volumes and the paths in them to files.
type Files map[string]map[string]File

// File is a file of a volume.
type File struct {
	Data []byte
	Mode os.FileMode
}

// Write writes the files into the volumes of a pod. dir is the directory of the pod, as
// passed to New of a runtime. Call New first.
func (f Files) Write(dir string) error {
	for name, files := range f {
		volume := filepath.Join(dir, podfiles.Volumes, name)
		if err := os.MkdirAll(volume, 0o755); err != nil {
			return err
		}
		root, err := os.OpenRoot(volume) // A container may have made symbolic links.
		if err != nil {
			return err
		}
		defer root.Close()
		for name, file := range files {
			if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
				return err
			}
			root.Remove(name)
			if err := root.WriteFile(name, file.Data, file.Mode); err != nil {
				return err
			}
			if err := root.Chmod(name, file.Mode); err != nil { // WriteFile applies the umask.
				return err
			}
		}
	}
	return nil
}

// Resolve resolves the references of a pod to objects and to resources of containers.
// It changes the environment of the containers and returns the files of the volumes.
// The pod must be valid: see Validate. A missing object that is not optional counts as
// empty, and Resolve returns a warning. It returns an error for a key that an object does
// not have, and for an environment or a command that is too long after expansion. It
// keeps the behavior of makeEnvironmentVariables of pkg/kubelet and of the volume
// plugins.
func (o Objects) Resolve(pod *v1.Pod) (files Files, warnings []string, errs field.ErrorList) {
	r := resolver{pod: pod, objects: o, missing: map[string]bool{}}
	for path, c := range Containers(&pod.Spec) {
		r.container(c, path)
	}
	files = Files{}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; !isAPIAccess(v) {
			r.files = map[string]File{}
			r.volume(v, field.NewPath("spec", "volumes").Index(i))
			files[v.Name] = r.files
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.missing)) {
		warnings = append(warnings, key+" is not in the manifests: it counts as empty")
	}
	return files, warnings, r.errs
}

type resolver struct {
	pod     *v1.Pod
	objects Objects
	missing map[string]bool
	files   map[string]File // The files of the current volume.
	errs    field.ErrorList
}

// data returns the data of an object, or nil if it is missing.
func (r *resolver) data(kind, name string, optional *bool) map[string][]byte {
	key := objectKey(kind, r.pod.Namespace, name)
	data, ok := r.objects[key]
	if !ok && !ptr.Deref(optional, false) {
		r.missing[key] = true
	}
	return data
}

// value returns the value of a key. It returns false if the key is missing and optional.
func (r *resolver) value(kind, name, key string, optional *bool, path *field.Path) ([]byte, bool) {
	data := r.data(kind, name, optional)
	value, ok := data[key]
	if !ok && data != nil && !ptr.Deref(optional, false) {
		r.errs = append(r.errs, field.NotFound(path.Child("key"), key))
	}
	return value, ok || !ptr.Deref(optional, false)
}

func (r *resolver) container(c *v1.Container, path *field.Path) {
	var env []v1.EnvVar
	set := func(name string, value []byte) {
		env = append(env, v1.EnvVar{Name: name, Value: strings.ReplaceAll(string(value), "$", "$$")})
	}
	for _, from := range c.EnvFrom {
		var data map[string][]byte
		if ref := from.ConfigMapRef; ref != nil {
			data = r.data("ConfigMap", ref.Name, ref.Optional)
		} else if ref := from.SecretRef; ref != nil {
			data = r.data("Secret", ref.Name, ref.Optional)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			// The kubelet takes no variable from binaryData.
			if from.ConfigMapRef == nil || !bytes.Contains(data[key], []byte{0}) {
				set(from.Prefix+key, data[key])
			}
		}
	}
	for i, e := range c.Env {
		path := path.Child("env").Index(i).Child("valueFrom")
		value, ok := []byte(nil), true
		switch source := ptr.Deref(e.ValueFrom, v1.EnvVarSource{}); {
		case source.ConfigMapKeyRef != nil:
			ref := source.ConfigMapKeyRef
			value, ok = r.value("ConfigMap", ref.Name, ref.Key, ref.Optional, path.Child("configMapKeyRef"))
		case source.SecretKeyRef != nil:
			ref := source.SecretKeyRef
			value, ok = r.value("Secret", ref.Name, ref.Key, ref.Optional, path.Child("secretKeyRef"))
		case source.ResourceFieldRef != nil:
			value = []byte(r.resource(c, source.ResourceFieldRef, path.Child("resourceFieldRef")))
		default:
			env = append(env, e)
			continue
		}
		if ok {
			set(e.Name, value)
		}
	}
	c.EnvFrom, c.Env = nil, env
	env, err := Environment(r.pod, c, "")
	if err != nil {
		r.errs = append(r.errs, field.Invalid(path.Child("env"), field.OmitValueType{}, err.Error()))
	}
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	check := func(list []string, path *field.Path) {
		for i, s := range list {
			if _, ok := expand.String(s, values); !ok {
				r.errs = append(r.errs, field.TooLong(path.Index(i), "", expand.Max))
			}
		}
	}
	check(c.Command, path.Child("command"))
	check(c.Args, path.Child("args"))
}

func (r *resolver) volume(v *v1.Volume, path *field.Path) {
	sources := []v1.VolumeProjection{}
	var mode *int32
	switch {
	case v.ConfigMap != nil:
		mode = v.ConfigMap.DefaultMode
		sources = append(sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional,
		}})
	case v.Secret != nil:
		mode = v.Secret.DefaultMode
		sources = append(sources, v1.VolumeProjection{Secret: &v1.SecretProjection{
			LocalObjectReference: v1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional,
		}})
	case v.DownwardAPI != nil:
		mode = v.DownwardAPI.DefaultMode
		sources = append(sources, v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: v.DownwardAPI.Items}})
	case v.Projected != nil:
		mode, sources = v.Projected.DefaultMode, v.Projected.Sources
	}
	for _, s := range sources {
		if c := s.ConfigMap; c != nil {
			r.keys(v.Name, "ConfigMap", c.Name, c.Items, mode, c.Optional, path)
		}
		if c := s.Secret; c != nil {
			r.keys(v.Name, "Secret", c.Name, c.Items, mode, c.Optional, path)
		}
		if s.DownwardAPI != nil {
			for _, item := range s.DownwardAPI.Items {
				text := ""
				switch {
				case item.FieldRef != nil:
					var err error
					if text, err = fieldValue(r.pod, item.FieldRef.FieldPath, ""); err != nil {
						r.errs = append(r.errs, field.Invalid(path, item.FieldRef.FieldPath, err.Error()))
					}
				case item.ResourceFieldRef != nil:
					text = r.resource(nil, item.ResourceFieldRef, path)
				}
				r.file(item.Path, []byte(text), cmp.Or(item.Mode, mode), path)
			}
		}
		if s.ServiceAccountToken != nil {
			r.file(s.ServiceAccountToken.Path, nil, mode, path)
		}
	}
}

// keys adds a file for each key of an object, or for the given items. For a missing
// object it adds an empty file for each subPath that a mount uses.
func (r *resolver) keys(volume, kind, name string, items []v1.KeyToPath, mode *int32, optional *bool, path *field.Path) {
	data := r.data(kind, name, optional)
	if len(items) > 0 {
		for _, item := range items {
			if value, ok := r.value(kind, name, item.Key, optional, path); ok {
				r.file(item.Path, value, cmp.Or(item.Mode, mode), path)
			}
		}
		return
	}
	for key, value := range data {
		r.file(key, value, mode, path)
	}
	if data != nil {
		return
	}
	for _, c := range slices.Concat(r.pod.Spec.InitContainers, r.pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if m.Name == volume && m.SubPath != "" {
				r.file(m.SubPath, nil, mode, path)
			}
		}
	}
}

func (r *resolver) file(name string, data []byte, mode *int32, path *field.Path) {
	if !filepath.IsLocal(name) {
		r.errs = append(r.errs, field.Invalid(path, name, "must be a path in the volume"))
		return
	}
	r.files[name] = File{Data: data, Mode: os.FileMode(ptr.Deref(mode, 0o644)) & os.ModePerm}
}

// resource returns a request or limit of a container in units of the divisor, rounded
// up. If the reference has no container name, the container is own. As in the kubelet,
// the default of a limit is the capacity of the machine.
func (r *resolver) resource(own *v1.Container, ref *v1.ResourceFieldSelector, path *field.Path) string {
	for _, c := range slices.Concat(r.pod.Spec.InitContainers, r.pod.Spec.Containers) {
		if c.Name == ref.ContainerName {
			own = &c
		}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	if own == nil || kind != "limits" && kind != "requests" {
		r.errs = append(r.errs, field.Invalid(path, ref.Resource, "must be limits.NAME or requests.NAME of a container of the pod"))
		return ""
	}
	quantity, ok := own.Resources.Limits[v1.ResourceName(name)]
	if request, requested := own.Resources.Requests[v1.ResourceName(name)]; kind == "requests" && requested {
		quantity = request
	} else if kind == "limits" && !ok {
		switch v1.ResourceName(name) {
		case v1.ResourceCPU:
			quantity = *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)
		case v1.ResourceMemory:
			var kilobytes int64
			data, _ := os.ReadFile("/proc/meminfo")
			fmt.Sscanf(string(data), "MemTotal: %d kB", &kilobytes)
			quantity = *resource.NewQuantity(kilobytes<<10, resource.BinarySI)
		}
	}
	value, divisor := quantity.Value(), ref.Divisor.Value()
	if v1.ResourceName(name) == v1.ResourceCPU {
		value, divisor = quantity.MilliValue(), ref.Divisor.MilliValue()
		if divisor == 0 {
			divisor = 1000
		}
	}
	divisor = max(divisor, 1)
	return strconv.FormatInt((value+divisor-1)/divisor, 10)
}
