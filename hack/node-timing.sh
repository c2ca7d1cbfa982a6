#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-timing.sh [ARGUMENTS OF THE HARNESS]
#
# Applies the series where it is not applied yet, builds the release's kubelet and kube-apiserver and, from the patched
# tree, our kubelet, and measures both on a real node (test/node). With BASE_KUBELET=FILE in the environment, another
# patched kubelet, such as one without some of the patches, it compares ours with that one instead of the release's: what
# these patches cost. Processor time differs from run to run by more than that: --rounds 3 runs each scenario three times
# with either, in turn, and the best of either counts, as in
#   SKIP="8 9 10" KB_OUTPUT_DIR=DIR make kubelet
#   BASE_KUBELET=DIR/VERSION/kubelet hack/node-timing.sh --rounds 3 --only max1s,api5,restartpod
# For a release that is not the newest, "make node-timing KUBE_VERSION=v1.35.8" does the short form, --short. Needs root,
# for containerd.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '4,14s/^# \{0,1\}//p' "$0"; exit 0; }
# Check what the harness needs before the build, which takes minutes.
[[ $(id -u) == 0 ]] || die "node-timing needs root: it runs containerd and kubelets"
need go runc etcd
prepare_kubelets kubelet
# The whole, against the release's kubelet, is a check of the series. A part says little of it. Of an older release it is the
# short form, because the newest one shows the rest.
if (($# == 0)) && [[ -z ${BASE_KUBELET:-} ]]; then
  newest=$(releases | head -n1)
  [[ ${VERSION%.*} == "${newest%.*}" ]] || set -- --short
  set -- "$@" --record "$KB_HACK/patchset.sh"
fi
say "Measuring on a real node"
cd "$KB_ROOT/test/node"
# The harness cleans up after itself and must see Ctrl-C as the terminal sends it: no script in between.
trap - EXIT INT TERM HUP
exec go run ./timing timing "${REFERENCE[@]}" --ours "$OUT/kubelet" --apiserver "$OUT/stock/kube-apiserver" "$@"
