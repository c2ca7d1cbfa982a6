// SPDX-License-Identifier: Apache-2.0

// Package manifest judges the pods that crashloop run takes: it fills in what an
// API server would, refuses what an API server, a kubelet or a runtime would, and
// tells which fields have no effect. It also resolves the environment and the
// command of a container.
package manifest

// Support says which fields of a pod a runtime honours besides those that every
// runtime does.
//
// A field is written without indexes, as in "spec.containers.image", and stands
// for all below it. A field of containers is one of initContainers too.
type Support struct {
	// Name is what messages call the runtime.
	Name string
	// Honoured are fields that have their effect.
	Honoured []string
	// Refused has the reason for each field without which the pod would be another
	// one. It wins over Honoured.
	Refused map[string]string
	// NeedsCommand is for a runtime that has no image to take a command from.
	NeedsCommand bool
}

// Process is what the process runtime supports.
var Process = Support{Name: "process", NeedsCommand: true}
