#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-timing.sh [ARGUMENTS OF THE HARNESS]
#
# Applies the series where it is not applied yet, builds the release's kubelet and kube-apiserver and, from the patched
# tree, our kubelet, and measures both on a real node (test/node). Needs root, for containerd.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '4,7s/^# \{0,1\}//p' "$0"; exit 0; }
# What the harness needs, before the minutes that building takes.
[[ $(id -u) == 0 ]] || die "node-timing needs root: it runs containerd and kubelets"
need go runc etcd
"$KB_HACK/build.sh" --check || exit 1
patchset apply --keep || exit 1
load_tree --fetch
"$KB_HACK/build.sh" kubelet || exit 1
"$KB_HACK/build.sh" --stock kubelet kube-apiserver || exit 1
out=$(cd "$OUTPUT_DIR/$VERSION" && pwd -P)
say "Measuring on a real node"
cd "$KB_ROOT/test/node"
# The harness cleans up after itself and must see Ctrl-C as the terminal sends it: no script in between.
trap - EXIT INT TERM HUP
exec go run ./timing timing --stock "$out/stock/kubelet" --ours "$out/kubelet" --apiserver "$out/stock/kube-apiserver" "$@"
