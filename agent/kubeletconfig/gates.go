// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"

	"github.com/kubelet-backoff/kubelet-backoff/config"
)

const (
	// nodeDeclaredFeatures is here because another gate depends on it.
	nodeDeclaredFeatures featuregate.Feature = "NodeDeclaredFeatures"
	// The gates that component-base adds to every FeatureGate.
	allAlpha featuregate.Feature = "AllAlpha"
	allBeta  featuregate.Feature = "AllBeta"
)

// gateOrder is the order of Config.Gates.
var gateOrder = []featuregate.Feature{
	config.KubeletCrashLoopBackOffMax,
	config.ReduceDefaultCrashLoopBackOffDecay,
	config.KubeletDelayFirstContainerRestart,
	config.KubeletStrictCrashLoopBackOff,
	config.KubeletRelistOnExit,
	config.KubeletCachedStatusInBackOff,
	config.KubeletPatchPodStatusWithoutGet,
	config.KubeletFirstStartsFirst,
	config.KubeletRestartAtAnnotation,
	config.KubeletMaxRestartsAnnotation,
	config.KubeletRestartBackOffAnnotation,
	config.ContainerRestartRules,
	config.RestartAllContainersOnContainerExits,
	config.KubeletRestartAllContainersBackOff,
	config.RestartPodOnContainerExits,
}

// The minor releases that this project has patches for.
const (
	oldestMinor = 31
	newestMinor = 37
)

// NewFeatureGate returns the feature gates for restarts, all unset. Stages,
// defaults and dependencies are those of pkg/features in Kubernetes 1.37.
// AllAlpha and AllBeta apply to them. Each call returns a new, independent
// FeatureGate.
func NewFeatureGate() featuregate.MutableVersionedFeatureGate {
	return newFeatureGate(newestMinor)
}

// newFeatureGate is NewFeatureGate for a patched kubelet of release 1.minor. Gates that the
// release does not have are off.
func newFeatureGate(minor uint) featuregate.MutableVersionedFeatureGate {
	since := func(minor uint, spec featuregate.FeatureSpec) featuregate.FeatureSpec {
		spec.Version = version.MajorMinor(1, minor)
		return spec
	}
	alpha := featuregate.FeatureSpec{PreRelease: featuregate.Alpha}
	beta := featuregate.FeatureSpec{PreRelease: featuregate.Beta, Default: true}
	ga := featuregate.FeatureSpec{PreRelease: featuregate.GA, Default: true, LockToDefault: true}

	gate := featuregate.NewVersionedFeatureGate(version.MajorMinor(1, minor))
	err := errors.Join(
		gate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
			config.KubeletCrashLoopBackOffMax:           {since(oldestMinor, alpha), since(35, beta)},
			config.ReduceDefaultCrashLoopBackOffDecay:   {since(oldestMinor, alpha)},
			config.KubeletDelayFirstContainerRestart:    {since(oldestMinor, alpha)},
			config.KubeletStrictCrashLoopBackOff:        {since(oldestMinor, beta)},
			config.KubeletRelistOnExit:                  {since(oldestMinor, beta)},
			config.KubeletCachedStatusInBackOff:         {since(oldestMinor, beta)},
			config.KubeletPatchPodStatusWithoutGet:      {since(oldestMinor, beta)},
			config.KubeletFirstStartsFirst:              {since(34, beta)},
			config.KubeletRestartAtAnnotation:           {since(oldestMinor, alpha)},
			config.KubeletMaxRestartsAnnotation:         {since(oldestMinor, alpha)},
			config.KubeletRestartBackOffAnnotation:      {since(oldestMinor, alpha)},
			config.ContainerRestartRules:                {since(34, alpha), since(35, beta)},
			config.RestartAllContainersOnContainerExits: {since(35, alpha), since(36, beta)},
			config.KubeletRestartAllContainersBackOff:   {since(35, beta)},
			config.RestartPodOnContainerExits:           {since(34, alpha)},
			nodeDeclaredFeatures:                        {since(35, alpha), since(36, beta), since(37, ga)},
		}),
		gate.AddDependencies(map[featuregate.Feature][]featuregate.Feature{
			config.RestartAllContainersOnContainerExits: {config.ContainerRestartRules, nodeDeclaredFeatures},
			config.RestartPodOnContainerExits:           {config.ContainerRestartRules},
		}),
	)
	if err != nil {
		panic(err) // The table does not depend on input.
	}
	return gate
}

// formerGates has the names from drafts of the KEPs.
var formerGates = map[string]featuregate.Feature{
	"EnableKubeletCrashLoopBackoffMax": config.KubeletCrashLoopBackOffMax,
	"EnableRapidCrashLoopBackoffDecay": config.KubeletCrashLoopBackOffMax,
}

// maxGateEdits is the largest edit distance at which a name counts as a misspelled
// gate. Kubernetes 1.37 has no other gate at a distance below 7.
const maxGateEdits = 2

// nearGate returns the gate that an unknown name most likely means, in any case.
// The order matters only for a name between AllAlpha and AllBeta.
func nearGate(name string, known map[featuregate.Feature]featuregate.FeatureSpec) (featuregate.Feature, bool) {
	for _, gate := range slices.Sorted(maps.Keys(known)) {
		if edits(strings.ToLower(name), strings.ToLower(string(gate))) <= maxGateEdits {
			return gate, true
		}
	}
	for former, gate := range formerGates {
		if strings.EqualFold(name, former) {
			return gate, true
		}
	}
	return "", false
}

// edits returns the Levenshtein distance of a and b in bytes, or a number above
// maxGateEdits if the distance exceeds maxGateEdits.
func edits(a, b string) int {
	if d := len(a) - len(b); d < -maxGateEdits || d > maxGateEdits {
		return maxGateEdits + 1 // Do not depend on the length of a, which is input.
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// setGates sets the gates of values that gate knows. It ignores other names,
// because the kubelet has a hundred more gates. A name close to a known one is an
// error, because the kubelet rejects it as unrecognized. fileOf returns the file
// to name in an error about a gate, or about all gates for an empty name.
func setGates(gate featuregate.MutableVersionedFeatureGate, values map[string]bool, fileOf func(name string) string) error {
	path := field.NewPath("featureGates")
	var errs []error
	known := gate.GetAll()
	set := map[string]bool{}
	for _, name := range sortedKeys(values) {
		if _, ok := known[featuregate.Feature(name)]; ok {
			set[name] = values[name]
		} else if near, ok := nearGate(name, known); ok {
			err := field.Invalid(path, name, fmt.Sprintf("unrecognized feature gate: did you mean %s?", near))
			errs = append(errs, &Error{File: fileOf(name), Err: err})
		}
	}
	// component-base logs each GA gate that is set, so pass no logger.
	if err := gate.(featuregate.MutableFeatureGateWithLogger).SetFromMapWithLogger(klog.Logger{}, set); err != nil {
		errs = append(errs, &Error{File: fileOf(""), Err: field.Forbidden(path, err.Error())})
	}
	return utilerrors.NewAggregate(errs)
}
