// SPDX-License-Identifier: Apache-2.0

package config

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
)

// The feature gates for restarts, with the KEP and the stages of each.
const (
	// KubeletCrashLoopBackOffMax allows a maximum delay for each node: KEP-5593,
	// alpha in 1.32, beta and on since 1.35.
	KubeletCrashLoopBackOffMax featuregate.Feature = "KubeletCrashLoopBackOffMax"
	// ReduceDefaultCrashLoopBackOffDecay sets the delays of a node without such a
	// maximum to 1 s up to 60 s: KEP-4603, alpha since 1.33.
	ReduceDefaultCrashLoopBackOffDecay featuregate.Feature = "ReduceDefaultCrashLoopBackOffDecay"
	// KubeletDelayFirstContainerRestart makes the first restart wait too:
	// kubernetes/kubernetes#133472, alpha. Upstream does not have it.
	KubeletDelayFirstContainerRestart featuregate.Feature = "KubeletDelayFirstContainerRestart"
	// KubeletStrictCrashLoopBackOff makes two kinds of containers wait like a
	// container that exited: one that the kubelet killed, for example after a
	// failed liveness probe, and one that failed to start. Beta, on. Off restores
	// upstream's doBackOff. Upstream does not have the gate.
	KubeletStrictCrashLoopBackOff featuregate.Feature = "KubeletStrictCrashLoopBackOff"
	// KubeletFirstStartsFirst makes restarts wait for first starts of pods: alpha.
	// Upstream does not have it.
	KubeletFirstStartsFirst featuregate.Feature = "KubeletFirstStartsFirst"
	// ContainerRestartRules allows a restart policy and rules for each container:
	// KEP-5307, alpha in 1.34, beta and on since 1.35.
	ContainerRestartRules featuregate.Feature = "ContainerRestartRules"
	// RestartAllContainersOnContainerExits allows the action
	// RestartAllContainers in these rules: KEP-5532, alpha in 1.35, beta and on
	// since 1.36.
	RestartAllContainersOnContainerExits featuregate.Feature = "RestartAllContainersOnContainerExits"
	// KubeletRestartAllContainersBackOff handles the action RestartAllContainers
	// with restartpod and the pod's back-off: beta, on. Off restores upstream's
	// implementation. Upstream does not have the gate.
	KubeletRestartAllContainersBackOff featuregate.Feature = "KubeletRestartAllContainersBackOff"
	// RestartPodOnContainerExits allows the action RestartPod in these rules: an
	// earlier form of KEP-5532, alpha. Upstream does not have it.
	RestartPodOnContainerExits featuregate.Feature = "RestartPodOnContainerExits"
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
	KubeletCrashLoopBackOffMax,
	ReduceDefaultCrashLoopBackOffDecay,
	KubeletDelayFirstContainerRestart,
	KubeletStrictCrashLoopBackOff,
	KubeletFirstStartsFirst,
	ContainerRestartRules,
	RestartAllContainersOnContainerExits,
	KubeletRestartAllContainersBackOff,
	RestartPodOnContainerExits,
}

// NewFeatureGate returns the feature gates for restarts, all unset. Stages,
// defaults and dependencies are those of pkg/features in Kubernetes 1.37.
// AllAlpha and AllBeta apply to them. Each call returns a new, independent
// FeatureGate.
func NewFeatureGate() featuregate.MutableVersionedFeatureGate {
	since := func(minor uint, spec featuregate.FeatureSpec) featuregate.FeatureSpec {
		spec.Version = version.MajorMinor(1, minor)
		return spec
	}
	alpha := featuregate.FeatureSpec{PreRelease: featuregate.Alpha}
	beta := featuregate.FeatureSpec{PreRelease: featuregate.Beta, Default: true}
	ga := featuregate.FeatureSpec{PreRelease: featuregate.GA, Default: true, LockToDefault: true}

	gate := featuregate.NewVersionedFeatureGate(version.MajorMinor(1, 37))
	err := errors.Join(
		gate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
			KubeletCrashLoopBackOffMax:           {since(32, alpha), since(35, beta)},
			ReduceDefaultCrashLoopBackOffDecay:   {since(33, alpha)},
			KubeletDelayFirstContainerRestart:    {since(37, alpha)},
			KubeletStrictCrashLoopBackOff:        {since(37, beta)},
			KubeletFirstStartsFirst:              {since(37, alpha)},
			ContainerRestartRules:                {since(34, alpha), since(35, beta)},
			RestartAllContainersOnContainerExits: {since(35, alpha), since(36, beta)},
			KubeletRestartAllContainersBackOff:   {since(37, beta)},
			RestartPodOnContainerExits:           {since(37, alpha)},
			nodeDeclaredFeatures:                 {since(35, alpha), since(36, beta), since(37, ga)},
		}),
		gate.AddDependencies(map[featuregate.Feature][]featuregate.Feature{
			KubeletFirstStartsFirst:              {KubeletStrictCrashLoopBackOff},
			RestartAllContainersOnContainerExits: {ContainerRestartRules, nodeDeclaredFeatures},
			RestartPodOnContainerExits:           {ContainerRestartRules},
		}),
	)
	if err != nil {
		panic(err) // The table does not depend on input.
	}
	return gate
}

// formerGates has the names from drafts of the KEPs.
var formerGates = map[string]featuregate.Feature{
	"EnableKubeletCrashLoopBackoffMax": KubeletCrashLoopBackOffMax,
	"EnableRapidCrashLoopBackoffDecay": KubeletCrashLoopBackOffMax,
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
