#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-e2e.sh [SCENARIO [ARGUMENTS OF THE TEST BINARY]]
#
# Applies the series unless it is applied, builds kubelet and API server, and runs on a real node (test/node) the scenarios
# of pods that are restarted in place, those of crashloop run, and upstream's own tests of restart rules.
# SCENARIO is a regular expression that selects scenarios by name: Deleted in any group, Pods/Deleted in one group; Pods,
# Disruptions, Persist or Metrics for a whole group, and with node-vm.sh Machine; Upstream for upstream's tests; CrashloopRun,
# CrashloopRun/Killed or CrashloopRun/Pods/Killed for those of crashloop run, which need no kubelet; Twins for those that
# compare both. Soak kills the parts of a full node for two hours, or for TIME with -soak TIME; it is not part of a whole run.
# Persist/Upgrade and some Disruptions switch from the stock kubelet to ours and back. They use STOCK_KUBELET=FILE in the
# environment, or the kubelet that make node-timing built. If neither exists, they are skipped and the result of the run is not
# stored.
# RUNTIME=crio in the environment uses CRI-O with crun instead of containerd, and RUNTIME=crio-runc CRI-O with runc.
# Needs root, for the container runtime.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help

# node-e2e.sh --build-upstream builds upstream's tests from the patched tree. They use the kubelet in the same directory.
if [[ ${1:-} == --build-upstream ]]; then
  load_tree --applied
  build_for_tests "$TREE" "upstream's tests" go test -c -vet=off -ldflags '-s -w' -o "$OUTPUT_DIR/$VERSION/e2e_node.test" ./test/e2e_node
  exit
fi

groups='Pods|Machine|Disruptions|Persist|Metrics'

# scenarios TEST SCENARIO prints the -run pattern for a test.
scenarios() {
  if [[ $2 =~ ^($groups)$|/ ]]; then printf '^%s$/%s' "$1" "$2"; else printf '^%s$/[^/]*/(%s)' "$1" "$2"; fi
}

# require_scenario TEST SCENARIO fails before the long build if there is no such scenario. Each scenario is a line of a list
# "var ...Scenarios" or "var ...Disruptions" in test/node/e2e. Those of TestCrashloopRun are in the lists "crashloop...".
require_scenario() {
  local group='' name=$2 names
  if [[ $2 =~ ^($groups)$ ]]; then
    group=$2 name=''
  elif [[ $2 == */* ]]; then
    group=${2%%/*} name=${2#*/}
  fi
  # Parts after a further slash select subtests of a scenario.
  names=$(awk -v test="$1" -v wanted_group="$group" -v wanted="${name%%/*}" '
    /^var .*= \[\]scenario\{/ {
      listed = ($2 ~ /^crashloop/) == (test == "TestCrashloopRun")
      group = $2 ~ /[dD]isruptions$/ ? "Disruptions" : $2 ~ /^persist/ ? "Persist" : $2 ~ /^(metrics|recording)/ ? "Metrics" : "Pods"
      if ($2 ~ /^machine/) group = "Machine"
    }
    /^}/ { listed = 0 }
    listed && (group != "Machine" || ENVIRON["NODE_VM"]) && /^\t\{"/ {
      split($0, f, "\"")
      all = all group "/" f[2] "\n"
      if (group ~ wanted_group && f[2] ~ wanted) found = 1
    }
    END { if (!found) printf "%s", all }' "$KB_ROOT"/test/node/e2e/*_test.go) || exit 1
  [[ -z $names ]] || die "no scenario of $1 matches \"$2\". There are:" "$names"
}

upstream=Upstream kubelet=kubelet
case ${1:-} in
  '') run='^Test(CrashloopRun|Node|Upstream)$' ;;
  Upstream) run='^TestUpstream$' ;;
  # One half compares its results with the other half's, so both must run.
  Twins) run='^Test(CrashloopRun|Node)$/^Disruptions$/^Twins' upstream='' ;;
  Soak) run='^TestSoak$' upstream='' ;;
  CrashloopRun) run='^TestCrashloopRun$' upstream='' kubelet='' ;;
  CrashloopRun/*)
    require_scenario TestCrashloopRun "${1#*/}"
    run=$(scenarios TestCrashloopRun "${1#*/}") upstream='' kubelet=''
    ;;
  *)
    require_scenario TestNode "$1"
    run=$(scenarios TestNode "$1") upstream=''
    ;;
esac

runtime_needs
if [[ $RUNTIME != containerd ]]; then
  [[ ${1:-} != Upstream ]] || die "upstream's tests run with containerd only"
  upstream='' run=${run/|Upstream/}
fi

# Upstream's tests start a kubelet of their own, without systemd's cgroups.
if [[ -n ${NODE_VM:-} ]]; then
  [[ ${1:-} != Upstream ]] || die "upstream's tests do not run in the virtual machine"
  upstream='' run=${run/|Upstream/}
fi

# Check what the harness needs before the build, which takes minutes.
need go
if [[ -n ${NODE_VM:-} ]]; then
  vm_needs
  [[ $RUNTIME == containerd ]] || need gcc
else
  [[ $(id -u) == 0 ]] || die "node-e2e needs root: it runs a container runtime and a kubelet"
  need "${needs[@]}"
  [[ -z $kubelet ]] || need etcd
fi
if [[ -n $upstream ]]; then
  need_busybox
fi
args=()
if [[ -n $kubelet ]]; then
  "$KB_HACK/build.sh" --check || exit 1
  apply_series
  # In v1.34 upstream's tests need a cluster. The names are those of upstreamFocus.
  if [[ -n $upstream ]] && ! grep -rqsE 'Container Restart Rules|RestartAllContainers' "$TREE/test/e2e/common/node" "$TREE/test/e2e_node"; then
    why="kubernetes $VERSION has no tests of restart rules that are for a node"
    [[ ${1:-} != Upstream ]] || die "$why"
    note "skipped: upstream's tests, because $why"
    upstream='' run=${run/|Upstream/}
  fi
  "$KB_HACK/build.sh" kubelet kubelet-short-reset kube-apiserver kube-controller-manager || exit 1
  [[ -z $upstream ]] || "$0" --build-upstream || exit 1
  plugin=$OUTPUT_DIR/$VERSION/device-plugin
  [[ -z ${NODE_VM:-} ]] || build_for_tests "$TREE" "upstream's sample device plugin" go build -o "$plugin" ./test/images/sample-device-plugin || exit 1
  out=$(cd "$OUTPUT_DIR/$VERSION" && pwd -P)
  args=(
    -kubelet "$out/kubelet" -kubelet-short-reset "$out/kubelet-short-reset"
    -apiserver "$out/kube-apiserver" -controller-manager "$out/kube-controller-manager"
  )
  stock=${STOCK_KUBELET:-$out/stock/kubelet}
  if [[ -n ${STOCK_KUBELET:-} || -e $stock ]]; then
    args+=(-kubelet-stock "$(realpath -- "$stock")")
  elif [[ ${1:-} =~ ^(Persist|Disruptions)?$ ]]; then
    note "without a stock kubelet the scenarios that need one are skipped, and the result is not stored"
    record=()
  fi
  [[ -z ${NODE_VM:-} ]] || args+=(-device-plugin "$plugin")
  if [[ -n $upstream ]]; then
    tag=$(upstream_tag busybox)
    args+=(-e2e-node "$out/e2e_node.test" -busybox "$busybox" -busybox-tag "$tag")
  fi
elif [[ -n ${NODE_VM:-} && -z ${KUBE_ROOT:-} ]]; then
  apply_series # The series has the result, although no kubelet runs.
else
  record=()
fi
# Only a whole run is a check of the series. In the virtual machine, where it takes hours, a group of scenarios is a part of one.
part=''
[[ -z ${NODE_VM:-} ]] || part="|$groups|CrashloopRun|Twins"
(($# < 2)) && [[ ${1:-} =~ ^($part)$ ]] || record=()
case ${NODE_VM:+vm-}$RUNTIME in
  containerd | vm-containerd | crio) ;;
  vm-crio) VM_CHECK='node-vm-crio' ;;
  *) record=() ;;
esac
limit=2h parallel=6
[[ ${1:-} != Soak ]] || args+=(-soak 2h) limit=4h
if [[ -n ${NODE_VM:-} ]]; then
  # More at once take so long there that requests of the API server time out.
  VM_CHECK+=${1:+/$1} limit=$VM_LIMIT parallel=2
  # Why a scenario failed is printed at once, because the machine may crash before the end.
  args+=(-test.v)
else
  args+=("${record[@]}")
fi
run_e2e "${args[@]}" -runtime "$RUNTIME" -test.run "$run" -test.parallel "$parallel" -test.timeout "$limit" "${@:2}"
