// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	crashLoopBackOffField = "crashLoopBackOff"
	maxField              = "maxContainerRestartPeriod"
	maxPath               = crashLoopBackOffField + "." + maxField
)

// nearFields maps likely mistakes, in lower case, to the right path: spellings from
// drafts of the KEPs, wrong nesting, wrong case.
var nearFields = map[string]string{
	"crashloopbackoff":                                  crashLoopBackOffField,
	"crashloopbackoff.maxcontainerrestartperiod":        maxPath,
	"crashloopbackoff.maxcontainerrestartperiodseconds": maxPath,
	"crashloopbackoff.maxseconds":                       maxPath,
	"maxcontainerrestartperiod":                         maxPath,
	"maxcontainerrestartperiodseconds":                  maxPath,
	"featuregates":                                      "featureGates",
}

// misspelt returns the paths in object that are mistakes in nearFields.
func misspelt(object map[string]any) []string {
	var paths []string
	for name, value := range object {
		if right, ok := nearFields[strings.ToLower(name)]; ok && name != right {
			paths = append(paths, name)
		}
		if child, ok := value.(map[string]any); ok && strings.EqualFold(name, crashLoopBackOffField) {
			for childName := range child {
				path := name + "." + childName
				if _, ok := nearFields[strings.ToLower(path)]; ok && childName != maxField {
					paths = append(paths, path)
				}
			}
		}
	}
	return paths
}

// strictMessage matches an error of apimachinery's strict decoder about JSON.
var strictMessage = regexp.MustCompile(`^(unknown|duplicate) field (".*")$`)

// warnings converts the errors of the strict decoder to warnings. It adds
// misspellings below an unknown field.
func (d *document) warnings(strict []error) []Warning {
	var warnings []Warning
	unknown := map[string]bool{}
	for _, path := range misspelt(d.object) {
		unknown[path] = true
	}
	for _, err := range strict {
		match := strictMessage.FindStringSubmatch(err.Error())
		path := ""
		if match != nil {
			path, _ = strconv.Unquote(match[2])
		}
		switch {
		case d.dropIn() && (match == nil || match[1] == "duplicate"):
			// The kubelet rejects a drop-in with duplicates, so that is an error and
			// not a warning.
		case match == nil:
			warnings = append(warnings, Warning{File: d.source.File, Detail: oneLine(err.Error()) + ": the last one counts"})
		case match[1] == "duplicate":
			warnings = append(warnings, Warning{File: d.source.File, Field: path, Detail: "duplicate field: the last one counts"})
		default:
			unknown[path] = true
		}
	}
	for _, path := range sortedKeys(unknown) {
		w := Warning{File: d.source.File, Field: path, Detail: "unknown field"}
		if right, ok := nearFields[strings.ToLower(path)]; ok {
			w.Detail += ": did you mean " + right + "?"
			if d.dropIn() && strings.EqualFold(path, right) {
				w.Detail = "not the field's case, " + right + ": it counts in a drop-in, and would not in the file of --config"
			}
		}
		warnings = append(warnings, w)
	}
	return warnings
}

// maxTypeError returns an error if maxContainerRestartPeriod in object has the wrong
// type, and nil otherwise. anyCase is for drop-ins.
func maxTypeError(object map[string]any, anyCase bool) *field.Error {
	path := field.NewPath(crashLoopBackOffField)
	for name, value := range object {
		if name != crashLoopBackOffField && !(anyCase && strings.EqualFold(name, crashLoopBackOffField)) {
			continue
		}
		child, ok := value.(map[string]any)
		if !ok && value != nil {
			return field.TypeInvalid(path, value, "must be an object with the field "+maxField)
		}
		for name, value := range child {
			if name != maxField && !(anyCase && strings.EqualFold(name, maxField)) {
				continue
			}
			if err := durationError(path.Child(maxField), value); err != nil {
				return err
			}
		}
	}
	return nil
}

func durationError(path *field.Path, value any) *field.Error {
	const want = "must be a string with a number and its unit"
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		if _, err := time.ParseDuration(v); err != nil {
			return field.Invalid(path, v, fmt.Sprintf("%s, such as \"4s\": %v", want, err))
		}
		return nil
	case int64, float64:
		return field.TypeInvalid(path, v, fmt.Sprintf("%s: did you mean \"%vs\"?", want, v))
	default:
		return field.TypeInvalid(path, v, want+", such as \"4s\"")
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
