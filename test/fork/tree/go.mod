// SPDX-License-Identifier: Apache-2.0

// A fork that vendors the library: `go mod vendor` copies from it what the fork imports.
module example.com/fork

go 1.26.0

// In a fork this is the folder with the library's source, such as a git submodule.
replace github.com/kubelet-backoff/kubelet-backoff => ../../..

require (
	github.com/kubelet-backoff/kubelet-backoff v0.0.0
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3
)
