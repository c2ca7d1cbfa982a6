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
	"os"
	"path/filepath"
	"reflect"
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

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

// manifestDecoder decodes the kinds that podOf knows, ConfigMaps and Secrets. If it
// returns a strict decoding error, it also returns the object.
var manifestDecoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(appsv1.AddToScheme(scheme))
	utilruntime.Must(batchv1.AddToScheme(scheme))
	return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme,
		jsonserializer.SerializerOptions{Yaml: true, Strict: true})
}()

type manifestFlags struct {
	files     []string
	recursive bool
}

func addManifestFlags(cmd *cobra.Command, o *manifestFlags) {
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "a file with manifests, a directory with such files, or - for stdin; the same as the argument MANIFEST")
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "R", false, "read directories recursively")
	usage.Name(cmd, map[string]string{"filename": "FILE|DIR|-"})
	cobra.CheckErr(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
}

// list returns the files of the flags and arguments. It replaces a directory with its
// files with the extensions .yaml, .yml and .json. readManifest reports files that cannot
// be read.
func (o manifestFlags) list(args []string) (files []string) {
	for _, name := range slices.Concat(o.files, args) {
		if info, err := os.Stat(name); name == stdinFile || err != nil || !info.IsDir() {
			files = append(files, name)
			continue
		}
		found := len(files)
		root := name + string(filepath.Separator) // Without it WalkDir does not follow a link.
		filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case path == root:
			case err != nil:
				files = append(files, path)
			case e.IsDir() && !o.recursive:
				return fs.SkipDir
			case !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
				// A FIFO would make the command wait for its writer.
				if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
					files = append(files, path)
				}
			}
			return nil
		})
		if len(files) == found {
			files = append(files, name) // readManifest warns of the directory.
		}
	}
	return files
}

// manifestName returns the name of a file in a report.
func manifestName(file string) string {
	if file == stdinFile {
		return "stdin"
	}
	return file
}

// issues are the warnings and errors about the input.
type issues struct {
	Warnings []issueReport `json:"warnings,omitempty"`
	Errors   []issueReport `json:"errors,omitempty"`
}

// The limits of a file of manifests: its size in bytes, the objects and the containers in it,
// and how deep lists may be in lists. They bound the time and the memory of each command. A
// node runs a few hundred containers.
const (
	maxManifest   = 4 << 20
	maxObjects    = 1000
	maxContainers = 1000
	maxLists      = 3
)

// visitObject is called for each object of a manifest that is not a list, with the results of
// podOf. file and name are for issues.
type visitObject func(file, name string, object runtime.Object, pod *v1.Pod, path *field.Path)

// reader reads a file of manifests.
type reader struct {
	*issues
	file  string
	visit visitObject
	// objects and containers count what was found.
	objects, containers int
}

// readManifest visits the objects in a file of manifests.
func (r *issues) readManifest(file string, stdin io.Reader, visit visitObject) {
	data, err := readFile(file, stdin, maxManifest)
	if info, statErr := os.Stat(file); err != nil && file != stdinFile && statErr == nil && info.IsDir() {
		r.Warnings = append(r.Warnings, newIssue(file, "", "", noManifest))
		return
	}
	file = manifestName(file)
	if err != nil {
		r.Errors = append(r.Errors, newIssue(file, "", "", err.Error()))
		return
	}
	m := &reader{issues: r, file: file, visit: visit}
	stream := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; m.objects <= maxObjects; {
		documents, err := stream.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.Errors = append(r.Errors, newIssue(file, fmt.Sprintf("document %d", n), "", err.Error()))
			return
		}
		for document, rest := []byte(nil), documents; len(rest) > 0 && m.objects <= maxObjects; n++ {
			document, rest = cutDocument(rest)
			m.read(fmt.Sprintf("document %d", n), document, 0)
		}
	}
}

// endMarker ends a YAML document. It cannot occur within a document, not even in a string.
var endMarker = regexp.MustCompile(`(?m)^\.\.\.(?:\s|$)`)

// cutDocument cuts the first document off data without separators: a JSON object, or
// the text before an end marker. The YAML decoder would ignore what follows.
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

// more counts an object and reports whether the file may have it. It adds an error for the
// first one that is too many.
func (r *reader) more() bool {
	if r.objects++; r.objects == maxObjects+1 {
		r.Errors = append(r.Errors, newIssue(r.file, "", "", fmt.Sprintf("more than %d objects, which is the limit", maxObjects)))
	}
	return r.objects <= maxObjects
}

// found visits an object, unless the file has too many containers with it.
func (r *reader) found(name string, object runtime.Object) {
	pod, path := podOf(object)
	if pod != nil {
		n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
		if r.containers += n; r.containers > maxContainers {
			r.Errors = append(r.Errors, newIssue(r.file, name, path.String(), fmt.Sprintf("with these %d containers the file has more than %d, which is the limit", n, maxContainers)))
			return
		}
	}
	r.visit(r.file, name, object, pod, path)
}

// read visits the object in a document, or the items of a list, which is in as many lists as
// depth. Issues use name until the object is decoded.
func (r *reader) read(name string, data []byte, depth int) {
	if !r.more() {
		return
	}
	file := r.file
	object, kind, err := manifestDecoder.Decode(data, nil, nil)
	strictErr, isStrict := runtime.AsStrictDecodingError(err)
	switch {
	case runtime.IsNotRegisteredError(err):
		detail := noTemplate
		if kind.Kind == "KubeletConfiguration" {
			detail = "skipped: pass it with --config"
		}
		r.Warnings = append(r.Warnings, newIssue(file, kind.Kind, "", detail))
		return
	case runtime.IsMissingKind(err):
		if content, err := yaml.YAMLToJSON(data); err == nil && string(content) == "null" {
			return
		}
		r.Errors = append(r.Errors, newIssue(file, name, "kind", "must be set"))
		return
	case runtime.IsMissingVersion(err):
		r.Errors = append(r.Errors, newIssue(file, name, "apiVersion", "must be set"))
		return
	case err != nil && !isStrict:
		r.Errors = append(r.Errors, newDecodeIssue(file, name, err))
		return
	}

	name = objectName(object, kind.Kind)
	if isStrict {
		for _, err := range strictErr.Errors() {
			path, detail := "", oneLine(err)
			if quoted, ok := strings.CutPrefix(detail, "unknown field "); ok {
				if unquoted, err := strconv.Unquote(quoted); err == nil {
					path, detail = unquoted, "unknown field"+suggestion(unquoted)
				}
			}
			r.Warnings = append(r.Warnings, newIssue(file, name, path, detail))
		}
	}
	if !meta.IsListType(object) {
		r.found(name, object)
		return
	}
	if meta.LenList(object) == 0 { // kubectl get prints such lists.
		r.Warnings = append(r.Warnings, newIssue(file, name, "items", noItems))
		return
	}
	if list, ok := object.(*v1.List); ok {
		if depth == maxLists {
			r.Errors = append(r.Errors, newIssue(file, name, "items", fmt.Sprintf("lists nested more than %d deep, which is the limit", maxLists)))
			return
		}
		for i, item := range list.Items {
			r.read(fmt.Sprintf("items[%d]", i), item.Raw, depth+1)
		}
		return
	}
	// The items may lack their kind.
	itemKind := strings.TrimSuffix(kind.Kind, "List")
	utilruntime.Must(meta.EachListItem(object, func(item runtime.Object) error {
		if r.more() {
			r.found(objectName(item, itemKind), item)
		}
		return nil
	}))
}

// newDecodeIssue returns the issue of an object that cannot be decoded.
func newDecodeIssue(file, object string, err error) issueReport {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		must := map[reflect.Kind]string{reflect.Slice: "a list", reflect.Map: "an object", reflect.Struct: "an object", reflect.String: "a string", reflect.Bool: "true or false"}[wrong.Type.Kind()]
		is := map[string]string{"array": "a list", "object": "an object"}[wrong.Value]
		detail := fmt.Sprintf("must be %s, not %s", cmp.Or(must, "a number"), cmp.Or(is, "a "+wrong.Value))
		if must == "a string" && (wrong.Value == "number" || wrong.Value == "bool") {
			detail += ": quote it"
		}
		return newIssue(file, object, wrong.Field, detail)
	case strings.HasPrefix(err.Error(), "couldn't get version/kind"):
		return newIssue(file, object, "", "must be an object with apiVersion and kind, as strings")
	}
	return newIssue(file, object, "", oneLine(err))
}

// oneLine joins the lines of a YAML error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n  ", " ") }

// objectName returns the kind, the namespace and the name of an object.
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

// ruleFields maps misspelled fields of restart rules in lower case to the correct names.
// onExit is in an example of KEP-5532.
var ruleFields = map[string]string{
	"restartpolicy":      "restartPolicy",
	"restartpolicyrule":  "restartPolicyRules",
	"restartpolicyrules": "restartPolicyRules",
	"exitcode":           "exitCodes",
	"exitcodes":          "exitCodes",
	"onexit":             "exitCodes, in the rule itself",
}

// suggestion returns the correct name of a misspelled field, as the end of a sentence.
func suggestion(path string) string {
	name := path[strings.LastIndex(path, ".")+1:]
	if correct, ok := ruleFields[strings.ToLower(name)]; ok && correct != name {
		return ": the field is " + correct
	}
	return ""
}
