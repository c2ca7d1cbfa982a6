// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/agent/manifest"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// manifestDecoder knows the objects that podTemplate does, and those that pods refer
// to. It returns an object
// beside a strict decoding error.
var manifestDecoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	utilruntime.Must(batchv1.AddToScheme(scheme))
	return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme,
		jsonserializer.SerializerOptions{Yaml: true, Strict: true})
}()

// podTemplate returns the pod template in an object, or what a pod has of one, and
// the path of its spec. It is nil if there is none.
func podTemplate(object runtime.Object) (*v1.PodTemplateSpec, *field.Path) {
	path := field.NewPath("spec", "template", "spec")
	switch o := object.(type) {
	case *v1.Pod:
		return &v1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}, field.NewPath("spec")
	case *v1.PodTemplate:
		return &o.Template, field.NewPath("template", "spec")
	case *v1.ReplicationController:
		return o.Spec.Template, path
	case *appsv1.Deployment:
		return &o.Spec.Template, path
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, path
	case *appsv1.StatefulSet:
		return &o.Spec.Template, path
	case *appsv1.DaemonSet:
		return &o.Spec.Template, path
	case *batchv1.Job:
		return &o.Spec.Template, path
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, field.NewPath("spec", "jobTemplate", "spec", "template", "spec")
	}
	return nil, nil
}

// podOf returns the one pod that is run of an object, with the object's name, and
// the path of its spec. It is nil if there is none.
func podOf(object runtime.Object) (*v1.Pod, *field.Path) {
	template, path := podTemplate(object)
	if template == nil {
		return nil, nil
	}
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	owner, err := meta.Accessor(object)
	utilruntime.Must(err)
	pod.Name, pod.GenerateName, pod.Namespace = owner.GetName(), owner.GetGenerateName(), owner.GetNamespace()
	if set, ok := object.(*appsv1.StatefulSet); ok {
		pod.Name += "-0"
		for _, claim := range set.Spec.VolumeClaimTemplates {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: claim.Name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name},
			}})
		}
	}
	return pod, path
}

// manifestFlags say which manifests there are, besides those of the arguments.
type manifestFlags struct {
	files     []string
	recursive bool
}

func addManifestFlags(cmd *cobra.Command, o *manifestFlags) {
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "a file of manifests, a folder of such, or - for stdin, as an argument is")
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "R", false, "also the files in folders of a folder")
	namePlaceholders(cmd, map[string]string{"filename": "FILE|DIR|-"})
	must(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
}

// list returns the files. A folder stands for those in it that have manifests by
// their names. What cannot be read is for readManifest to say.
func (o manifestFlags) list(args []string) (files []string) {
	for _, name := range slices.Concat(o.files, args) {
		if info, err := os.Stat(name); name == stdinFile || err != nil || !info.IsDir() {
			files = append(files, name)
			continue
		}
		filepath.WalkDir(name, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				files = append(files, path)
			case e.IsDir() && path != name && !o.recursive:
				return fs.SkipDir
			case !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
				files = append(files, path)
			}
			return nil
		})
	}
	return files
}

// manifestName is what a report calls a file of manifests.
func manifestName(file string) string {
	if file == stdinFile {
		return "stdin"
	}
	return file
}

// issues are what there is to say of what was read.
type issues struct {
	Warnings []issueReport `json:"warnings,omitempty"`
	Errors   []issueReport `json:"errors,omitempty"`
}

// maxManifest is how many bytes a file of manifests may have.
const maxManifest = 4 << 20

// visitObject gets an object of a manifest that is no list: the name of the
// file, the object's kind, namespace and name, and the object.
type visitObject func(file, name string, object runtime.Object)

// readManifest visits the objects in a file of manifests. It reports whether there
// was a list without items.
func (r *issues) readManifest(file string, stdin io.Reader, visit visitObject) (empty bool) {
	data, err := readFile(file, stdin, maxManifest)
	file = manifestName(file)
	if err != nil {
		r.Errors = append(r.Errors, newIssue(file, "", "", err.Error()))
		return false
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; {
		documents, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return empty
		}
		if err != nil {
			r.Errors = append(r.Errors, newIssue(file, fmt.Sprintf("document %d", n), "", err.Error()))
			return empty
		}
		for document, rest := []byte(nil), documents; len(rest) > 0; n++ {
			document, rest = cutDocument(rest)
			empty = r.readDocument(file, fmt.Sprintf("document %d", n), document, visit) || empty
		}
	}
}

// endMarker ends a YAML document. No document has one in it, not even in a text.
var endMarker = regexp.MustCompile(`(?m)^\.\.\.(?:\s|$)`)

// cutDocument cuts off the first document of data that has no separators: a JSON
// object, or what stands before an end marker. The YAML decoder would read it and
// say nothing of what follows.
func cutDocument(data []byte) (document, rest []byte) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var raw json.RawMessage
	if utilyaml.IsJSONBuffer(data) && decoder.Decode(&raw) == nil {
		return raw, bytes.TrimSpace(data[decoder.InputOffset():])
	}
	if end := endMarker.FindIndex(data); end != nil {
		return data[:end[0]], bytes.TrimSpace(data[end[1]:])
	}
	return data, nil
}

// noItems is what a warning says of a list without items, as kubectl get prints it.
const noItems = "none: there is nothing to look at"

// readDocument visits the object in a document, or the items of a list. The name
// is for as long as the object's own is not known. It reports whether the object is
// or holds a list without items.
func (r *issues) readDocument(file, name string, data []byte, visit visitObject) (empty bool) {
	object, kind, err := manifestDecoder.Decode(data, nil, nil)
	strictErr, isStrict := runtime.AsStrictDecodingError(err)
	switch {
	case runtime.IsNotRegisteredError(err):
		detail := "not looked at: it has no pod template that is known here"
		if kind.Kind == "KubeletConfiguration" {
			detail = "not looked at: --config is for it"
		}
		r.Warnings = append(r.Warnings, newIssue(file, kind.Kind, "", detail))
		return false
	case runtime.IsMissingKind(err):
		if content, err := yaml.YAMLToJSON(data); err == nil && string(content) == "null" {
			return false
		}
		r.Errors = append(r.Errors, newIssue(file, name, "kind", "must be set"))
		return false
	case runtime.IsMissingVersion(err):
		r.Errors = append(r.Errors, newIssue(file, name, "apiVersion", "must be set"))
		return false
	case err != nil && !isStrict:
		r.Errors = append(r.Errors, newIssue(file, name, "", oneLine(err)))
		return false
	}

	name = objectName(object, kind.Kind)
	if isStrict {
		for _, err := range strictErr.Errors() {
			path, detail := "", oneLine(err)
			if quoted, ok := strings.CutPrefix(detail, "unknown field "); ok {
				if unquoted, err := strconv.Unquote(quoted); err == nil {
					path, detail = unquoted, "unknown field"+near(unquoted)
				}
			}
			r.Warnings = append(r.Warnings, newIssue(file, name, path, detail))
		}
	}
	if !meta.IsListType(object) {
		visit(file, name, object)
		return false
	}
	if meta.LenList(object) == 0 {
		r.Warnings = append(r.Warnings, newIssue(file, name, "items", noItems))
		return true
	}
	if list, ok := object.(*v1.List); ok {
		for i, item := range list.Items {
			empty = r.readDocument(file, fmt.Sprintf("items[%d]", i), item.Raw, visit) || empty
		}
		return empty
	}
	// The items need not name their kind.
	itemKind := strings.TrimSuffix(kind.Kind, "List")
	utilruntime.Must(meta.EachListItem(object, func(item runtime.Object) error {
		visit(file, objectName(item, itemKind), item)
		return nil
	}))
	return false
}

// oneLine is the text of an error, of which the YAML decoder makes several lines.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n  ", " ") }

// objectName is kind, namespace and name, as far as they are set.
func objectName(object runtime.Object, kind string) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return kind // A list.
	}
	name := cmp.Or(accessor.GetName(), accessor.GetGenerateName())
	if namespace := accessor.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

// nearRuleFields has the right name for what one may take for a field of a
// container's restart rules: other spellings, and onExit of KEP-5532's example.
var nearRuleFields = map[string]string{
	"restartpolicy":      "restartPolicy",
	"restartpolicyrule":  "restartPolicyRules",
	"restartpolicyrules": "restartPolicyRules",
	"exitcode":           "exitCodes",
	"exitcodes":          "exitCodes",
	"onexit":             "exitCodes, in the rule itself",
}

// near returns what may be meant by an unknown field, as the end of a sentence.
func near(path string) string {
	name := path[strings.LastIndex(path, ".")+1:]
	if right, ok := nearRuleFields[strings.ToLower(name)]; ok && right != name {
		return ": the field is " + right
	}
	return ""
}

// podManifest is a pod of a manifest, with its defaults.
type podManifest struct {
	// file and object are what issues call them, and path is that of the pod's spec
	// in the object.
	file, object string
	path         *field.Path
	pod          *v1.Pod
	files        manifest.Files
}

// newIssue returns an issue of the pod. It has the path of the object.
func (p podManifest) newErrorIssue(err *field.Error) issueReport {
	if rest, ok := strings.CutPrefix(err.Field, "spec"); ok {
		err.Field = p.path.String() + rest
	}
	return newErrorIssue(p.file, p.object, err)
}

// noPod is what a warning says of a file.
const noPod = "there is neither a pod nor a pod template in it"

// readPods reads the pods of files of manifests, each with what commands have for
// its containers, and the ConfigMaps and Secrets. Without errors no two pods have
// the same namespace and name. Nothing else of them is validated.
func (r *issues) readPods(files []string, stdin io.Reader, commands map[string]string) (pods []podManifest, objects manifest.Objects) {
	objects = manifest.Objects{}
	seen := map[string]string{} // The file, by namespace and name.
	unused := maps.Clone(commands)
	for _, file := range files {
		found, errors := false, len(r.Errors)
		r.readManifest(file, stdin, func(file, name string, object runtime.Object) {
			if objects.Add(object) {
				found = true
				return
			}
			pod, path := podOf(object)
			if pod == nil {
				r.Warnings = append(r.Warnings, newIssue(file, name, "", "not looked at: it has no pod template that is known here"))
				return
			}
			found = true
			for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for i := range containers {
					if command, ok := commands[containers[i].Name]; ok {
						containers[i].Command = []string{"/bin/sh", "-c", command, containers[i].Name}
						delete(unused, containers[i].Name)
					}
				}
			}
			manifest.Default(pod)
			key := pod.Namespace + "/" + pod.Name
			if kind, _, _ := strings.Cut(name, " "); kind != "Pod" && seen[key] != "" && pod.Name != "" {
				pod.Name += "-" + strings.ToLower(kind) // A Deployment and a Job may have the same name.
				key = pod.Namespace + "/" + pod.Name
			}
			if other, ok := seen[key]; ok && pod.Name != "" {
				err := field.Duplicate(field.NewPath("metadata", "name"), key)
				err.Detail = "there is another one in " + other
				r.Errors = append(r.Errors, newErrorIssue(file, name, err))
				return
			}
			seen[key] = file
			pods = append(pods, podManifest{file: file, object: name, path: path, pod: pod})
		})
		if !found && len(r.Errors) == errors {
			r.Warnings = append(r.Warnings, newIssue(manifestName(file), "", "", noPod))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		r.Errors = append(r.Errors, newIssue("", "", "--command", fmt.Sprintf("no container is named %q", name)))
	}
	return pods, objects
}

// addPods returns the pods of the manifests, with all that there is to say of
// them added to the report.
func (r *report) addPods(manifests []string, stdin io.Reader, commands map[string]string, gates restartpod.Gates, support manifest.Support) []podManifest {
	pods, objects := r.readPods(manifests, stdin, commands)
	for i := range pods {
		p := &pods[i]
		warnings, errs := manifest.Validate(p.pod, gates, support)
		for _, w := range warnings {
			r.Warnings = append(r.Warnings, newIssue(p.file, p.object, w.Field, w.Detail))
		}
		if len(errs) == 0 {
			var missing []string
			p.files, missing, errs = objects.Resolve(p.pod)
			for _, text := range missing {
				r.Warnings = append(r.Warnings, newIssue(p.file, p.object, "", text))
			}
		}
		for _, err := range errs {
			if support.NeedsCommand && err.Type == field.ErrorTypeRequired && strings.HasSuffix(err.Field, ".command") {
				err.Detail += ", or name one with --command NAME=COMMAND"
			}
			r.Errors = append(r.Errors, p.newErrorIssue(err))
		}
	}
	return pods
}
