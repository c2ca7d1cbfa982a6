#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-load.sh [ARGUMENTS OF THE HARNESS]
#
# Applies the series unless it is applied, builds the stock and the patched kubelet and kube-apiserver, and measures what
# restarts cost each kubelet on a full node, with a runtime that keeps its containers in memory (test/node/load). With
# BASE_KUBELET=FILE in the environment, it compares ours with that kubelet, another patched one, instead of the stock one.
# A third kubelet, ours with jitter, runs the mix in which all pods fail at the same instant.
# To measure a single row:
#   hack/node-load.sh --only all-fail --pods 110 --seconds 20 --profile DIR
# Needs root, for namespaces of its own.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help
# Check what the harness needs before the build, which takes minutes.
[[ $(id -u) == 0 ]] || die "node-load needs root: it runs kubelets in namespaces of their own"
need go etcd
prepare_kubelets kubelet kube-apiserver kubelet-jittered
say "Measuring on a full node"
state=$OUTPUT_DIR/node
mkdir -p "$state"
# The harness runs in the user's directory, because the arguments may have relative paths.
CGO_ENABLED=0 GOWORK=off go build -C "$KB_ROOT/test/node" -o "$state/load" ./load
# The harness cleans up after itself, and must get a Ctrl-C directly from the terminal.
trap - EXIT INT TERM HUP
exec "$state/load" --work "$state" --sources "$KB_ROOT/test/node" "${REFERENCE[@]}" --ours "$OUT/kubelet" --jittered "$OUT/kubelet-jittered" \
  --apiserver "$OUT/stock/kube-apiserver" --apiserver-patched "$OUT/kube-apiserver" "$@"
