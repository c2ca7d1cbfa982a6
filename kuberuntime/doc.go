// SPDX-License-Identifier: Apache-2.0

// Package kuberuntime is what the kubelet's runtime manager and pod workers do
// with a back-off: whether a container may be started now ([DoBackOff]), under
// which key it is kept ([Key]), the error that says when to ask again
// ([BackoffError]) and what follows from that for the next sync of the pod
// ([NextSync], [Waiting]).
//
// It works on plain types and has no dependency on k8s.io/kubernetes.
package kuberuntime
