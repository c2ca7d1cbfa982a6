#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-skew.sh [ARGUMENTS OF THE TEST BINARY]
#
# Runs several kubelets one after another on a node, as in an upgrade and a downgrade: for each release the stock one, then
# ours, and at the end the newest stock one again; with the newest release's API server, once patched and once stock. Running
# containers must keep running, and each kubelet must restart crashing ones. The releases are those of the newest series, of
# the one before, and of the third before (set others with RELEASES="v1.34.12 v1.36.3 v1.37.1", newest last). Builds all
# kubelets, which takes about ten minutes per release the first time. Needs root, for containerd.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help
[[ $(id -u) == 0 ]] || die "node-skew needs root: it runs containerd and kubelets"
need go runc etcd
[[ -z ${KUBE_ROOT:-}${KUBE_VERSION:-} ]] || die "node-skew takes no KUBE_ROOT or KUBE_VERSION: set several releases with RELEASES=\"v1.36.3 v1.37.1\""
if [[ -n ${RELEASES:-} ]]; then
  read -ra releases <<<"$RELEASES"
else
  mapfile -t all < <(releases)
  releases=()
  for i in 3 1 0; do [[ -z ${all[i]:-} ]] || releases+=("${all[i]}"); done
fi
newest=${releases[-1]}
kubelets=''
for release in "${releases[@]}"; do
  export KUBE_VERSION=$release
  programs=(kubelet)
  [[ $release != "$newest" ]] || programs+=(kube-apiserver)
  prepare_kubelets "${programs[@]}"
  kubelets+=,$OUT/stock/kubelet,$OUT/kubelet
done
kubelets+=,$OUT/stock/kubelet
# Only a whole run is a check of the newest series.
(($# == 0)) && [[ -z ${RELEASES:-} ]] || record=()
run_e2e "${record[@]}" -skew-kubelets "${kubelets#,}" -apiserver "$OUT/kube-apiserver" \
  -apiserver-stock "$OUT/stock/kube-apiserver" -test.run '^TestSkew$' -test.timeout 45m "$@"
