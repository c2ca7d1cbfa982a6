#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-cluster.sh [ARGUMENTS OF THE TEST BINARY]
#
# Applies the series unless it is applied, builds the control plane, the stock and the patched kubelet, and takes a cluster
# of three nodes from stock kubelets to ours and back (test/node/cluster). Scheduler, controller manager and JobSet's
# controller are real; the runtimes keep their containers in memory.
# Needs root, for namespaces of its own.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help
# Check what the harness needs before the build, which takes minutes.
[[ $(id -u) == 0 ]] || die "node-cluster needs root: it runs kubelets in namespaces of their own"
need go etcd
"$KB_HACK/build.sh" --check || exit 1
apply_series
"$KB_HACK/build.sh" kubelet kube-apiserver kube-controller-manager kube-scheduler || exit 1
"$KB_HACK/build.sh" --stock kubelet || exit 1
out=$(cd "$OUTPUT_DIR/$VERSION" && pwd -P)
(($# == 0)) || record=()
say "Running a cluster"
mkdir -p "$OUTPUT_DIR/node"
cd "$KB_ROOT/test/node"
CGO_ENABLED=0 GOWORK=off go test -c -o "$OUTPUT_DIR/node/cluster.test" ./cluster
# The harness cleans up after itself, and must get a Ctrl-C directly from the terminal.
trap - EXIT INT TERM HUP
exec "$OUTPUT_DIR/node/cluster.test" -work "$OUTPUT_DIR/node" "${record[@]}" -kubelet "$out/kubelet" -kubelet-stock "$out/stock/kubelet" \
  -apiserver "$out/kube-apiserver" -controller-manager "$out/kube-controller-manager" -scheduler "$out/kube-scheduler" -test.timeout 1h "$@"
