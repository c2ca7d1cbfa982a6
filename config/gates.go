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

// The feature gates that concern restarts, with the KEP of each and its stages.
const (
	// KubeletCrashLoopBackOffMax allows a maximal delay for each node: KEP-5593,
	// alpha in 1.32, beta and on since 1.35.
	KubeletCrashLoopBackOffMax featuregate.Feature = "KubeletCrashLoopBackOffMax"
	// ReduceDefaultCrashLoopBackOffDecay makes the delays of a node without such
	// a maximum 1 s to 60 s: KEP-4603, alpha since 1.33.
	ReduceDefaultCrashLoopBackOffDecay featuregate.Feature = "ReduceDefaultCrashLoopBackOffDecay"
	// KubeletDelayFirstContainerRestart makes the first restart wait too:
	// kubernetes/kubernetes#133472, alpha. Upstream does not have it.
	KubeletDelayFirstContainerRestart featuregate.Feature = "KubeletDelayFirstContainerRestart"
	// KubeletStrictCrashLoopBackOff has a container that the kubelet killed, for
	// instance after a failed liveness probe, and one whose start failed, wait as
	// one that exited: beta, on. Off is upstream's doBackOff, which does not have
	// the gate.
	KubeletStrictCrashLoopBackOff featuregate.Feature = "KubeletStrictCrashLoopBackOff"
	// KubeletFirstStartsFirst has restarts make way for first starts of pods: alpha.
	// Upstream does not have it.
	KubeletFirstStartsFirst featuregate.Feature = "KubeletFirstStartsFirst"
	// ContainerRestartRules allows a restart policy and rules for each container:
	// KEP-5307, alpha in 1.34, beta and on since 1.35.
	ContainerRestartRules featuregate.Feature = "ContainerRestartRules"
	// RestartAllContainersOnContainerExits allows the action
	// RestartAllContainers in these rules: KEP-5532, alpha in 1.35, beta and on
	// since 1.36.
	RestartAllContainersOnContainerExits featuregate.Feature = "RestartAllContainersOnContainerExits"
	// KubeletRestartAllContainersBackOff gives the action RestartAllContainers the
	// pod's back-off and restartpod's way of restarting: beta, on. Off is
	// upstream's way, which does not have the gate.
	KubeletRestartAllContainersBackOff featuregate.Feature = "KubeletRestartAllContainersBackOff"
	// RestartPodOnContainerExits allows the action RestartPod in these rules:
	// KEP-5532 in an earlier form, alpha. Upstream does not have it.
	RestartPodOnContainerExits featuregate.Feature = "RestartPodOnContainerExits"
)

const (
	// nodeDeclaredFeatures is known because another gate depends on it.
	nodeDeclaredFeatures featuregate.Feature = "NodeDeclaredFeatures"
	// The gates that component-base adds to every FeatureGate.
	allAlpha featuregate.Feature = "AllAlpha"
	allBeta  featuregate.Feature = "AllBeta"
)

// gateOrder is the order in which Config.Gates lists them.
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

// NewFeatureGate returns the gates that concern restarts, all unset, with the
// stages, defaults and dependencies that they have in pkg/features of
// kubernetes 1.37. AllAlpha and AllBeta act on them. Each call returns a new
// one: nothing is shared.
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
		panic(err) // The table holds no input.
	}
	return gate
}

// formerGates has the names of the KEPs' drafts.
var formerGates = map[string]featuregate.Feature{
	"EnableKubeletCrashLoopBackoffMax": KubeletCrashLoopBackOffMax,
	"EnableRapidCrashLoopBackoffDecay": KubeletCrashLoopBackOffMax,
}

// maxGateEdits is how far a name may be from a gate's and still be taken for it.
// Kubernetes 1.37 has no other gate that is less than 7 edits away.
const maxGateEdits = 2

// nearGate returns the gate that is meant by a name, in any case, that is none
// of the known ones. The order matters to a name between AllAlpha and AllBeta
// alone.
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

// edits returns how many bytes have to be inserted, removed or replaced to make
// b of a (the Levenshtein distance), or more than maxGateEdits if it is more.
func edits(a, b string) int {
	if d := len(a) - len(b); d < -maxGateEdits || d > maxGateEdits {
		return maxGateEdits + 1 // At any length of a, which is input.
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

// setGates sets what gate knows of values. It passes over other names, for the
// kubelet has a hundred more, but not over those that are near to a known one:
// the kubelet refuses them as unrecognized. fileOf names the file to blame for a
// gate, or for all of them together when the name is empty.
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
	// Without a logger, for component-base logs each GA gate that is set.
	if err := gate.(featuregate.MutableFeatureGateWithLogger).SetFromMapWithLogger(klog.Logger{}, set); err != nil {
		errs = append(errs, &Error{File: fileOf(""), Err: field.Forbidden(path, err.Error())})
	}
	return utilerrors.NewAggregate(errs)
}
