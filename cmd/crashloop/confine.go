// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/agent/process"
)

// confine returns whether the pods run without namespaces of their own: because the
// user wants that, or because there are none here. It adds what each pod asks for
// that it does not get then, which is a warning only where the user wants it so.
func (r *report) confine(pods []podManifest, unconfined bool) bool {
	var cannot error
	if !unconfined {
		cannot = process.CanConfine()
	}
	if cannot != nil {
		r.Warnings = append(r.Warnings, newIssue("", "", "namespaces", cannot.Error()+": the pods are not confined, and can do to this machine all that their user can"))
	}
	for _, p := range pods {
		for _, err := range process.Validate(p.pod, !unconfined && cannot == nil) {
			if err.Type == field.ErrorTypeForbidden && unconfined {
				r.Warnings = append(r.Warnings, newIssue(p.file, p.object, err.Field, err.Detail))
				continue
			}
			if err.Type == field.ErrorTypeForbidden {
				err.Detail += " (--unconfined runs the pod without that)"
			}
			r.Errors = append(r.Errors, newErrorIssue(p.file, p.object, err))
		}
	}
	return unconfined || cannot != nil
}
