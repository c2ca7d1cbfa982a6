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
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

// podReport is what check says of a pod, or of the pod template of an object.
type podReport struct {
	File string `json:"file"`
	// Object is kind, namespace and name of the object in the manifest.
	Object     string            `json:"object"`
	Containers []containerReport `json:"containers"`
}

type containerReport struct {
	Name string          `json:"name"`
	Kind restartpod.Kind `json:"kind"`
	// RestartPolicy is the effective one.
	RestartPolicy v1.ContainerRestartPolicy `json:"restartPolicy"`
	// Exits end with the one for all exit codes that are not listed before.
	Exits []exitReport `json:"exits"`
}

// exitReport says what follows an exit.
type exitReport struct {
	// ExitCodes is missing for all others.
	ExitCodes []int32 `json:"exitCodes,omitempty"`
	// Action is missing if the container is not started again.
	Action v1.ContainerRestartRuleAction `json:"action,omitempty"`
	Result string                        `json:"result"`
}

// manifestDecoder knows the objects that podSpec does. It returns an object
// beside a strict decoding error.
var manifestDecoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	utilruntime.Must(batchv1.AddToScheme(scheme))
	return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme,
		jsonserializer.SerializerOptions{Yaml: true, Strict: true})
}()

// podSpec returns the spec of the pod in an object and its path, or nil if there
// is none.
func podSpec(object runtime.Object) (*v1.PodSpec, *field.Path) {
	template := field.NewPath("spec", "template", "spec")
	switch o := object.(type) {
	case *v1.Pod:
		return &o.Spec, field.NewPath("spec")
	case *v1.PodTemplate:
		return &o.Template.Spec, field.NewPath("template", "spec")
	case *v1.ReplicationController:
		if o.Spec.Template == nil {
			return nil, nil
		}
		return &o.Spec.Template.Spec, template
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec, template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec, template
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec, template
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec, template
	case *batchv1.Job:
		return &o.Spec.Template.Spec, template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec, field.NewPath("spec", "jobTemplate", "spec", "template", "spec")
	}
	return nil, nil
}

// restartGates returns the gates that restart rules depend on.
func restartGates(gate featuregate.FeatureGate) restartpod.Gates {
	return restartpod.Gates{
		ContainerRestartRules: gate.Enabled(config.ContainerRestartRules),
		RestartPod:            gate.Enabled(config.RestartPodOnContainerExits),
		RestartAllContainers:  gate.Enabled(config.RestartAllContainersOnContainerExits),
	}
}

var allRestartGates = restartpod.Gates{ContainerRestartRules: true, RestartPod: true, RestartAllContainers: true}

// stdinFile is stdin among the manifests.
const stdinFile = "-"

// manifestName is what a report calls a file of manifests.
func manifestName(file string) string {
	if file == stdinFile {
		return "stdin"
	}
	return file
}

// addManifest adds what there is to say of a file of manifests.
func (r *report) addManifest(file string, stdin io.Reader, gates restartpod.Gates) {
	var data []byte
	var err error
	if file == stdinFile {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	file = manifestName(file)
	if err != nil {
		if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
			err = pathErr.Err // The issue has the path.
		}
		r.Errors = append(r.Errors, newIssue(file, "", "", err.Error()))
		return
	}
	pods, errs, empty := len(r.Pods), len(r.Errors), false
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.Errors = append(r.Errors, newIssue(file, fmt.Sprintf("document %d", n), "", err.Error()))
			return
		}
		for rest := document; len(rest) > 0; n++ {
			document, rest = cutJSON(rest)
			empty = r.addDocument(file, fmt.Sprintf("document %d", n), document, gates) || empty
		}
	}
	if len(r.Pods) == pods && len(r.Errors) == errs && !empty {
		r.Errors = append(r.Errors, newIssue(file, "", "", "there is neither a pod nor a pod template in it"))
	}
}

// cutJSON cuts off the JSON object that data begins with. It returns all of data
// if that is something else. The YAML decoder would read the first of several
// JSON objects and say nothing of the others.
func cutJSON(data []byte) (object, rest []byte) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var raw json.RawMessage
	if !utilyaml.IsJSONBuffer(data) || decoder.Decode(&raw) != nil {
		return data, nil
	}
	return raw, bytes.TrimSpace(data[decoder.InputOffset():])
}

// noItems is what a warning says of a list without items, as kubectl get prints it.
const noItems = "none: there is nothing to look at"

// addDocument adds what there is to say of a document that holds an object. The
// name is for as long as the object's own is not known. It tells whether the
// object is or holds a list without items.
func (r *report) addDocument(file, name string, data []byte, gates restartpod.Gates) (empty bool) {
	if content, err := yaml.YAMLToJSON(data); err == nil && string(content) == "null" {
		return false
	}
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
		r.Errors = append(r.Errors, newIssue(file, name, "kind", "must be set"))
		return false
	case runtime.IsMissingVersion(err):
		r.Errors = append(r.Errors, newIssue(file, name, "apiVersion", "must be set"))
		return false
	case err != nil && !isStrict:
		r.Errors = append(r.Errors, newIssue(file, name, "", err.Error()))
		return false
	}

	name = objectName(object, kind.Kind)
	if isStrict {
		for _, err := range strictErr.Errors() {
			path, detail := "", err.Error()
			if quoted, ok := strings.CutPrefix(detail, "unknown field "); ok {
				if unquoted, err := strconv.Unquote(quoted); err == nil {
					path, detail = unquoted, "unknown field"+near(unquoted)
				}
			}
			r.Warnings = append(r.Warnings, newIssue(file, name, path, detail))
		}
	}
	if !meta.IsListType(object) {
		r.addObject(file, name, object, gates)
		return false
	}
	if meta.LenList(object) == 0 {
		r.Warnings = append(r.Warnings, newIssue(file, name, "items", noItems))
		return true
	}
	if list, ok := object.(*v1.List); ok {
		for i, item := range list.Items {
			empty = r.addDocument(file, fmt.Sprintf("items[%d]", i), item.Raw, gates) || empty
		}
		return empty
	}
	// The items need not name their kind.
	itemKind := strings.TrimSuffix(kind.Kind, "List")
	utilruntime.Must(meta.EachListItem(object, func(item runtime.Object) error {
		r.addObject(file, objectName(item, itemKind), item, gates)
		return nil
	}))
	return false
}

// addObject adds what there is to say of an object that is no list.
func (r *report) addObject(file, name string, object runtime.Object, gates restartpod.Gates) {
	spec, path := podSpec(object)
	if spec == nil {
		return
	}
	for _, err := range validation.ValidatePodRestartRules(spec, path, validation.RestartRuleOptions{Gates: gates}) {
		r.Errors = append(r.Errors, newErrorIssue(file, name, err))
	}
	// What no gates make valid means nothing, and may be of any length.
	if len(validation.ValidatePodRestartRules(spec, path, validation.RestartRuleOptions{Gates: allRestartGates})) > 0 {
		return
	}
	for _, w := range validation.WarningsForPodRestartRules(spec, path, gates) {
		r.Warnings = append(r.Warnings, newIssue(file, name, w.Field, w.Detail))
	}
	pod := podReport{File: file, Object: name, Containers: []containerReport{}}
	for _, c := range restartpod.Containers(spec, gates) {
		pod.Containers = append(pod.Containers, containerReport{Name: c.Name, Kind: c.Kind, RestartPolicy: c.Policy, Exits: exitReports(&c, gates)})
	}
	r.Pods = append(r.Pods, pod)
}

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

// exitReports puts together the exit codes that lead to the same. Those that no
// rule lists, but for 0, all do.
func exitReports(c *restartpod.Container, gates restartpod.Gates) []exitReport {
	listed := sets.New[int32](0)
	for _, rule := range c.Rules {
		if rule.ExitCodes != nil {
			listed.Insert(rule.ExitCodes.Values...)
		}
	}
	unlisted := int32(1)
	for listed.Has(unlisted) {
		unlisted++
	}
	after := func(exitCode int32) exitReport {
		action := gates.OnExit(c, exitCode)
		return exitReport{Action: action, Result: result(c.Kind, exitCode, action)}
	}
	others := after(unlisted)
	var exits []exitReport
	for _, code := range sets.List(listed) {
		exit := after(code)
		if exit.Result == others.Result {
			continue
		}
		i := slices.IndexFunc(exits, func(e exitReport) bool { return e.Result == exit.Result })
		if i < 0 {
			i = len(exits)
			exits = append(exits, exit)
		}
		exits[i].ExitCodes = append(exits[i].ExitCodes, code)
	}
	return append(exits, others)
}

// result says in words what follows an exit.
func result(kind restartpod.Kind, exitCode int32, action v1.ContainerRestartRuleAction) string {
	switch action {
	case v1.ContainerRestartRuleActionRestart:
		return "restarts"
	case restartpod.ContainerRestartRuleActionRestartPod:
		return "the pod restarts in place"
	case v1.ContainerRestartRuleActionRestartAllContainers:
		return "the pod restarts in place, without a grace period"
	}
	switch {
	case kind != restartpod.KindInit:
		return "stays terminated"
	case exitCode == 0:
		return "is done"
	default:
		return "the pod fails"
	}
}

func writePod(b *bytes.Buffer, pod podReport) {
	fmt.Fprintf(b, "\n%s in %s\n", pod.Object, pod.File)
	tab := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "  CONTAINER\tKIND\tPOLICY\tEXIT CODE\tWHAT FOLLOWS")
	for _, c := range pod.Containers {
		name, kind, policy := c.Name, string(c.Kind), string(c.RestartPolicy)
		for i, exit := range c.Exits {
			codes := ranges(exit.ExitCodes)
			switch {
			case len(c.Exits) == 1:
				codes = "any"
			case i == len(c.Exits)-1:
				codes = "any other"
			}
			fmt.Fprintf(tab, "  %s\t%s\t%s\t%s\t%s\n", name, kind, policy, codes, exit.Result)
			name, kind, policy = "", "", ""
		}
	}
	tab.Flush()
}

// ranges writes exit codes, which are in ascending order, as in "1, 3-5".
func ranges(codes []int32) string {
	var parts []string
	for i := 0; i < len(codes); {
		first := codes[i]
		for i++; i < len(codes) && codes[i] == codes[i-1]+1; i++ {
		}
		if last := codes[i-1]; last == first {
			parts = append(parts, fmt.Sprint(first))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", first, last))
		}
	}
	return strings.Join(parts, ", ")
}
