// SPDX-License-Identifier: Apache-2.0

// Package config resolves the container restart back-off of a node. [Resolve] returns
// the effective [Curve] of a node's [Settings]: the initial and the maximum delay, and
// the reason for each. Package agent/kubeletconfig reads the Settings from the files and
// flags of a kubelet.
//
// The package describes a kubelet with the patches of this project. It differs
// from upstream's v1.37 in two ways:
//
//   - crashLoopBackOff.maxContainerRestartPeriod has no default. Upstream
//     defaults it to 300 s while the gate KubeletCrashLoopBackOffMax is on. The
//     default then overrides the 60 s of ReduceDefaultCrashLoopBackOffDecay, and
//     the kubelet refuses to start if a flag or a drop-in turns the gate off.
//   - While the gate is off, the field is ignored with a warning (KEP-5593,
//     "Conflict resolution"). Upstream refuses to start.
//
// Image pulls have a separate back-off, which this package does not affect.
package config
