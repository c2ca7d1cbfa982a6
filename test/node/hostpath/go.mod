// SPDX-License-Identifier: Apache-2.0

// This module exists only to pin and build Kubernetes' hostpath CSI driver; nothing imports it,
// so its dependencies stay out of the harness and of the library.
module github.com/kubelet-backoff/kubelet-backoff/test/node/hostpath

go 1.26.0

tool github.com/kubernetes-csi/drivers/app/hostpathplugin

require (
	github.com/container-storage-interface/spec v1.0.0 // indirect
	github.com/golang/glog v1.2.5 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/kubernetes-csi/csi-lib-utils v0.3.0 // indirect
	github.com/kubernetes-csi/drivers v1.0.2 // indirect
	github.com/pborman/uuid v1.2.1 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260414002931-afd174a4e478 // indirect
	google.golang.org/grpc v1.82.1 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
	k8s.io/apimachinery v0.37.1 // indirect
	k8s.io/klog v1.0.0 // indirect
	// A release of the driver's time. From v1.15 on, kubernetes requires staging modules that only its own tree has.
	k8s.io/kubernetes v1.13.0 // indirect
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // indirect
)
