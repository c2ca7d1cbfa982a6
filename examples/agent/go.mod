// SPDX-License-Identifier: Apache-2.0

// This module is outside the library, so that the compiler refuses imports of internal packages.
module example.com/agent

go 1.26.0

// These lines are for CI, which builds all modules of the same commit. Instead of them, run:
//
//	go get github.com/kubelet-backoff/kubelet-backoff/agent
replace (
	github.com/kubelet-backoff/kubelet-backoff => ../..
	github.com/kubelet-backoff/kubelet-backoff/agent => ../../agent
)

require (
	github.com/kubelet-backoff/kubelet-backoff v0.1.0
	github.com/kubelet-backoff/kubelet-backoff/agent v0.1.0
	k8s.io/api v0.37.2
)

require (
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/apimachinery v0.37.2 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
)
