#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-conformance.sh [--own] [ARGUMENTS OF THE TEST BINARY]
#
# Runs upstream's own NodeConformance specs (test/e2e_node) on a real node with our kubelet. The stock kubelet then runs those
# that did not pass, because ours must pass each spec that it passes. Each has the tests and the API server of its own tree.
# It builds the images for the specs from the tree (agnhost and pause) and from busybox, and skips specs that need other
# images or a registry. Before these it runs the specs that the series adds to test/e2e_node, with our kubelet, which must
# pass all of them. With --own it runs only these, in a few minutes. Needs root, for containerd. node-vm.sh Conformance runs
# upstream's specs in a virtual machine.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help
need go
if [[ -n ${NODE_VM:-} ]]; then
  vm_needs
  storage='\[sig-storage\]' lifecycle='\] Containers Lifecycle' probes='\] Probing '
  case ${VM_PART:-} in
    '') part=() ;;
    /sig-storage) part=(-focus "$storage") ;;
    /lifecycle) part=(-focus "$lifecycle") ;;
    /probes) part=(-focus "$probes") ;;
    /others) part=(-skip "$storage|$lifecycle|$probes") ;;
    *) die "node-vm: no part of Conformance is ${VM_PART#/}: they are sig-storage, lifecycle, probes and others" ;;
  esac
else
  [[ $(id -u) == 0 ]] || die "node-conformance needs root: it runs containerd and a kubelet"
  need runc etcd
fi
need_busybox
[[ -z ${BASE_KUBELET:-} ]] || die "node-conformance takes no BASE_KUBELET: it compares with the stock kubelet"
[[ $RUNTIME == containerd ]] || die "node-conformance runs with containerd only"
own=''
if [[ ${1:-} == --own ]]; then
  [[ -z ${NODE_VM:-} ]] || die "the specs of the series do not run in the virtual machine"
  own=1
  shift
fi
if [[ -n $own ]]; then
  "$KB_HACK/build.sh" --check || exit 1
  apply_series
  "$KB_HACK/build.sh" kubelet || exit 1
  OUT=$(cd "$OUTPUT_DIR/$VERSION" && pwd -P)
  trees=("$TREE") folders=$OUT
else
  prepare_kubelets kubelet
  trees=("$TREE" "$OUT/stock/kubernetes") folders=$OUT/stock,$OUT
fi
# SERIES and SKIP may leave these specs out, and older releases have no RestartPod.
specs='Container Restart Delays|Pod Restart In Place'
args=()
if [[ -n ${NODE_VM:-} ]]; then
  note "skipped: the specs of the series, which run outside the virtual machine"
elif grep -qE "SIGDescribe\(\"($specs)\"" "$TREE"/test/e2e_node/*_test.go; then
  args=(-own "$specs")
elif [[ -n $own ]]; then
  die "the series that is applied to $TREE has no specs"
else
  note "skipped: the specs of the series, because the series that is applied has none"
fi
for of in "${trees[@]}"; do
  to=$OUT/e2e_node.test
  [[ $of == "$TREE" ]] || to=$OUT/stock/e2e_node.test
  build_for_tests "$of" "upstream's tests" go test -c -vet=off -ldflags '-s -w' -o "$to" ./test/e2e_node || exit 1
done
build_for_tests "$TREE" ginkgo go build -o "$OUT/ginkgo" github.com/onsi/ginkgo/v2/ginkgo || exit 1
build_for_tests "$TREE" agnhost go build -ldflags '-s -w' -o "$OUT/agnhost" ./test/images/agnhost || exit 1
images=''
for image in agnhost busybox nonroot pause; do images+=,$image:$(upstream_tag "$image") || exit 1; done
# The images and the number of their versions depend on the release.
for image in glibc-dns-testing httpd nginx; do
  for tag in $(upstream_tags "$image"); do images+=,$image:$tag; done
done
# Only a whole run is a check of the series.
[[ -z $own ]] && (($# == 0)) || record=()
limit=90m
if [[ -n ${NODE_VM:-} ]]; then
  VM_CHECK=node-vm-conformance${VM_PART:-} limit=$VM_LIMIT
  args+=("${part[@]}")
else
  args+=("${record[@]}")
fi
run_e2e -conformance "$folders" "${args[@]}" -ginkgo "$OUT/ginkgo" -agnhost "$OUT/agnhost" -busybox "$busybox" \
  -images "${images#,}" -test.run '^TestConformance$' -test.timeout "$limit" "$@"
