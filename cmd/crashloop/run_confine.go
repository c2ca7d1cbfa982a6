// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
)

// confine reports whether the pods run without namespaces: because of --unconfined,
// or because this machine has none. It adds an issue for each field that needs
// namespaces then: a warning with --unconfined, else an error.
func (r *report) confine(pods []podManifest, unconfined bool) bool {
	var cannot error
	if !unconfined {
		cannot = process.CanConfine()
	}
	if cannot != nil {
		r.Warnings = append(r.Warnings, newIssue("", "", "namespaces", cannot.Error()+": the pods run without namespaces, and can change whatever their user can change"))
	}
	for _, p := range pods {
		for _, err := range process.Validate(p.pod, !unconfined && cannot == nil) {
			if err.Type == field.ErrorTypeForbidden && unconfined {
				r.Warnings = append(r.Warnings, newIssue(p.file, p.object, err.Field, err.Detail))
				continue
			}
			if err.Type == field.ErrorTypeForbidden {
				err.Detail += " (--unconfined runs the pod without it)"
			}
			r.Errors = append(r.Errors, newErrorIssue(p.file, p.object, err))
		}
	}
	return unconfined || cannot != nil
}
