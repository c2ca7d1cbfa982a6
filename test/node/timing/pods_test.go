// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"testing"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

func TestPodsDifferBetweenRuns(t *testing.T) {
	scenario := Scenario{Pods: 2}
	a := (&measurement{Node: &harness.Node{Spec: harness.Spec{ID: "run-1", Dir: "/x"}}, scenario: scenario}).pods()
	b := (&measurement{Node: &harness.Node{Spec: harness.Spec{ID: "run-2", Dir: "/x"}}, scenario: scenario}).pods()
	if len(a) != 2 || a[0].Name == a[1].Name {
		t.Fatalf("pods = %v", a)
	}
	if maps.Equal(a[0].Annotations, b[0].Annotations) {
		t.Errorf("both runs have the annotations %v: static pods would have the same UID", a[0].Annotations)
	}
}
