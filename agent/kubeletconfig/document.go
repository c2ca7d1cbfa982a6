// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func readError(path string, err error) *Error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err // The path is in Error.File.
	}
	return &Error{File: path, Err: err}
}

var (
	gvk            = kubeletconfigv1beta1.SchemeGroupVersion.WithKind("KubeletConfiguration")
	strictDecoder  = newDecoder(serializer.EnableStrict)
	lenientDecoder = newDecoder(serializer.DisableStrict)
)

func newDecoder(strictness serializer.CodecFactoryOptionsMutator) runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := kubeletconfigv1beta1.AddToScheme(scheme); err != nil {
		panic(err) // This does not depend on input.
	}
	return serializer.NewCodecFactory(scheme, strictness).UniversalDeserializer()
}

// document is a file.
type document struct {
	source Source
	data   []byte

	// decode sets the fields below.

	// The values that this file sets. A null in a drop-in sets nothing.
	max   *time.Duration
	gates map[string]bool
	// json is the content to merge: the known fields of the file, or everything
	// in a drop-in.
	json []byte
	// object is the whole file. It is used for hints.
	object map[string]any
}

// maxFile is how many bytes a file may have. The kubelet has no limit, and its
// whole configuration a thousandth of it.
const maxFile = 4 << 20

func (d *document) read() error {
	// The kubelet would wait for the writer of a FIFO, and never start.
	if info, err := os.Stat(d.source.File); d.dropIn() && err == nil && !info.Mode().IsRegular() {
		return d.blame(fmt.Errorf("%s: a drop-in must be a regular file", info.Mode().Type()))
	}
	f, err := os.Open(d.source.File)
	if err != nil {
		return readError(d.source.File, err)
	}
	defer f.Close()
	d.data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return readError(d.source.File, err)
	case len(d.data) > maxFile:
		return d.blame(fmt.Errorf("more than %d MiB, which is the limit", maxFile>>20))
	}
	return nil
}

// blame returns err as an Error of the document.
func (d *document) blame(err error) *Error { return &Error{File: d.source.File, Err: err} }

func (d *document) dropIn() bool { return d.source.Kind == SourceDropIn }

// decode decodes the document as the kubelet does. The warnings are valid even
// if there is an error.
func (d *document) decode() ([]Warning, error) {
	if len(d.data) == 0 {
		return nil, d.blame(errors.New("empty: apiVersion and kind are required"))
	}
	u := &unstructured.Unstructured{}
	if _, _, err := lenientDecoder.Decode(d.data, nil, u); err == nil {
		d.object = u.Object
	}
	typed, _, err := strictDecoder.Decode(d.data, nil, nil)
	var strict []error
	if strictErr, ok := runtime.AsStrictDecodingError(err); ok {
		strict = strictErr.Errors()
		typed, _, err = lenientDecoder.Decode(d.data, nil, nil)
	}
	warnings := d.warnings(strict)

	if d.dropIn() {
		// Types are checked after the merge because a later drop-in may replace
		// a value of the wrong type.
		if _, _, err = strictDecoder.Decode(d.data, nil, u); err == nil && u.GroupVersionKind() == gvk {
			if d.json, err = json.Marshal(u.Object); err == nil {
				d.setOwn()
				return warnings, nil
			}
		}
	} else if kc, ok := typed.(*kubeletconfigv1beta1.KubeletConfiguration); ok && err == nil {
		if d.json, err = json.Marshal(kc); err == nil {
			if kc.CrashLoopBackOff.MaxContainerRestartPeriod != nil {
				d.max = &kc.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
			}
			d.gates = kc.FeatureGates
			return warnings, nil
		}
	}
	return warnings, d.blame(d.explain(err))
}

// setOwn sets the fields max and gates from a drop-in. It ignores a value of the
// wrong type, which is an error after the merge unless another drop-in replaces
// it.
func (d *document) setOwn() {
	// The two are decoded separately, so that a wrong type in one does not
	// affect the other.
	var own struct {
		CrashLoopBackOff kubeletconfigv1beta1.CrashLoopBackOffConfig `json:"crashLoopBackOff"`
	}
	var ownGates struct {
		FeatureGates map[string]*bool `json:"featureGates"`
	}
	if json.Unmarshal(d.json, &own) == nil && own.CrashLoopBackOff.MaxContainerRestartPeriod != nil {
		d.max = &own.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	}
	_ = json.Unmarshal(d.json, &ownGates)
	d.gates = map[string]bool{}
	for name, value := range ownGates.FeatureGates {
		if value != nil {
			d.gates[name] = *value
		}
	}
}

// explain converts a decoder's error. Without one, it returns an error about the
// kind or the apiVersion.
func (d *document) explain(err error) error {
	kind, _ := d.object["kind"].(string)
	apiVersion, _ := d.object["apiVersion"].(string)
	switch {
	case err != nil && !runtime.IsMissingKind(err) && !runtime.IsMissingVersion(err) && !runtime.IsNotRegisteredError(err):
		return d.explainType(err)
	case kind != gvk.Kind:
		return field.NotSupported(field.NewPath("kind"), kind, []string{gvk.Kind})
	default:
		return field.NotSupported(field.NewPath("apiVersion"), apiVersion, []string{gvk.GroupVersion().String()})
	}
}

// explainType replaces a decoder's error, which seldom names the field. If the
// maximum has the wrong type, the new error names it.
func (d *document) explainType(err error) error {
	if fieldErr := maxTypeError(d.object, d.dropIn()); fieldErr != nil {
		return fieldErr
	}
	return errors.New(oneLine(err.Error()))
}

// hasMoreDocuments reports whether data has a second YAML document.
func hasMoreDocuments(data []byte) bool {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for found := false; ; {
		doc, err := reader.Read()
		if err != nil {
			return false
		}
		for line := range bytes.Lines(doc) {
			// Comments and directives may come before the first document.
			if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
				if found {
					return true
				}
				found = true
				break
			}
		}
	}
}
