// SPDX-License-Identifier: Apache-2.0

// Package config finds out which container restart back-off a node has: it
// reads the kubelet's configuration as the kubelet does, and resolves from it
// the effective curve.
//
//   - Load reads a KubeletConfiguration, a drop-in directory and the feature
//     gates of the command line, and keeps what concerns restarts: Settings.
//   - Resolve makes the Curve of these Settings.
//
// What it describes is the kubelet of this project's patches. Where that one
// differs from upstream's v1.37:
//
//   - crashLoopBackOff.maxContainerRestartPeriod has no default. Upstream fills
//     in 300 s while the gate KubeletCrashLoopBackOffMax is on. That value then
//     takes the place of the 60 s of ReduceDefaultCrashLoopBackOffDecay, and the
//     kubelet refuses to start when a flag or a drop-in turns the gate off.
//   - The field is not honoured while the gate is off, and the kubelet says so
//     (KEP-5593, "Conflict resolution"). Upstream refuses to start.
//
// The back-off of image pulls is separate: nothing here affects it.
package config
