// SPDX-License-Identifier: Apache-2.0

module github.com/kubelet-backoff/kubelet-backoff/test

go 1.26.0

require (
	github.com/kubelet-backoff/kubelet-backoff v0.1.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/mod v0.41.0
	k8s.io/client-go v0.37.2
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/time v0.15.0 // indirect
)
