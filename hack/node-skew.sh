#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-skew.sh [ARGUMENTS OF THE TEST BINARY]
#
# Runs several kubelets one after another on a node, as in an upgrade and a downgrade: for each release the stock one, then
# ours, and at the end the newest stock one again; with the newest release's API server, once patched and once stock. Running
# containers must keep running, and each kubelet must restart crashing ones. The newest release is that of the newest series;
# KUBE_VERSION=v1.36.3 in the environment selects another one. The others are those of the series before, and of the third
# before. Builds all kubelets, which takes about ten minutes per release the first time. Needs root, for containerd.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help
[[ $(id -u) == 0 ]] || die "node-skew needs root: it runs containerd and kubelets"
need go runc etcd
[[ -z ${KUBE_ROOT:-}${BASE_KUBELET:-} ]] || die "node-skew takes no KUBE_ROOT or BASE_KUBELET: it runs several releases, stock and patched"
mapfile -t all < <(releases)
newest=${KUBE_VERSION:-${all[0]}} releases=()
for i in "${!all[@]}"; do
  [[ ${all[i]} != "$newest" || -z ${all[i + 3]:-} ]] || releases=("${all[i + 3]}" "${all[i + 1]}" "$newest")
done
((${#releases[@]} > 0)) ||
  die "KUBE_VERSION=$newest: node-skew needs three series before that of the release; it takes one of ${all[*]:0:${#all[@]}-3}"
kubelets='' whole=1
for release in "${releases[@]}"; do
  export KUBE_VERSION=$release
  programs=(kubelet)
  [[ $release != "$newest" ]] || programs+=(kube-apiserver)
  prepare_kubelets "${programs[@]}"
  kubelets+=,$OUT/stock/kubelet,$OUT/kubelet
  ((${#record[@]} > 0)) || whole=''
done
kubelets+=,$OUT/stock/kubelet
# Only a whole run of whole series is a check.
[[ -n $whole ]] && (($# == 0)) || record=()
run_e2e "${record[@]}" -skew-kubelets "${kubelets#,}" -apiserver "$OUT/kube-apiserver" \
  -apiserver-stock "$OUT/stock/kube-apiserver" -test.run '^TestSkew$' -test.timeout 45m "$@"
