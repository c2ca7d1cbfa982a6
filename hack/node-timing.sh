#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-timing.sh [ARGUMENTS OF THE HARNESS]
#
# Applies the series unless it is applied, builds the stock and the patched kubelet and kube-apiserver, and measures both
# kubelets on a real node (test/node). With BASE_KUBELET=FILE in the environment, it compares ours with that kubelet
# instead of the stock one. If that kubelet lacks some patches, this measures their cost. Processor time differs from run
# to run by more than that, so --rounds 3 runs each scenario three times with each kubelet in turn, and the best round
# counts:
#   SERIES=core KB_OUTPUT_DIR=DIR make kubelet
#   BASE_KUBELET=DIR/VERSION/kubelet hack/node-timing.sh --rounds 3 --only max1s,api5,restartpod
# It draws the waits of the scenarios max1s and default to _output/node/late.svg.
# For older releases, such as "make node-timing KUBE_VERSION=v1.35.8", it runs fewer scenarios, as with --short. Needs root,
# for the container runtime. RUNTIME=crio in the environment uses CRI-O with crun instead of containerd, RUNTIME=crio-runc CRI-O
# with runc.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help
# Check what the harness needs before the build, which takes minutes.
[[ $(id -u) == 0 ]] || die "node-timing needs root: it runs a container runtime and kubelets"
runtime_needs
need go etcd "${needs[@]}"
prepare_kubelets kubelet kube-apiserver
# A run with the stock kubelet as the reference, whole or in the short form, is a check of the series. For an older release
# the short form is the default, because the newest release covers the rest.
if [[ -z ${BASE_KUBELET:-} && $RUNTIME == containerd && ($# == 0 || $* == --short) ]]; then
  newest=$(releases | head -n1)
  [[ ${VERSION%.*} == "${newest%.*}" ]] || set -- --short
  set -- "$@" "${record[@]/#-record/--record}"
fi
mkdir -p "$OUTPUT_DIR/node"
set -- --svg "$OUTPUT_DIR/node/late.svg" "$@"
say "Measuring on a real node"
cd "$KB_ROOT/test/node"
# The harness cleans up after itself, and must get a Ctrl-C directly from the terminal.
trap - EXIT INT TERM HUP
exec go run ./timing timing --runtime "$RUNTIME" "${REFERENCE[@]}" --ours "$OUT/kubelet" --apiserver "$OUT/stock/kube-apiserver" \
  --apiserver-patched "$OUT/kube-apiserver" "$@"
