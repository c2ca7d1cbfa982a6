#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-load.sh [ARGUMENTS OF THE HARNESS]
#
# Applies the series where it is not applied yet, builds the release's kubelet and kube-apiserver and, from the patched
# tree, ours, and measures what restarts cost either kubelet on a full node, whose runtime has its containers in memory
# (test/node/load). With BASE_KUBELET=FILE in the environment it compares ours with that one, another patched kubelet,
# instead of the release's. For a look at a single row:
#   hack/node-load.sh --only all-fail --pods 110 --seconds 20 --profile DIR
# Needs root, for namespaces of its own.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '4,12s/^# \{0,1\}//p' "$0"; exit 0; }
# What the harness needs, before the minutes that building takes.
[[ $(id -u) == 0 ]] || die "node-load needs root: it runs kubelets in namespaces of their own"
need go etcd
"$KB_HACK/build.sh" --check || exit 1
patchset apply --keep || exit 1
load_tree --fetch
"$KB_HACK/build.sh" kubelet kube-apiserver || exit 1
base=${BASE_KUBELET:+$(realpath -- "$BASE_KUBELET")}
[[ -z $base || -x $base ]] || die "BASE_KUBELET=$BASE_KUBELET is no program"
if [[ -n $base ]]; then
  "$KB_HACK/build.sh" --stock kube-apiserver || exit 1
else
  "$KB_HACK/build.sh" --stock kubelet kube-apiserver || exit 1
fi
out=$(cd "$OUTPUT_DIR/$VERSION" && pwd -P)
reference=(--stock "$out/stock/kubelet")
[[ -z $base ]] || reference=(--base "$base")
say "Measuring on a full node"
state=$OUTPUT_DIR/node
mkdir -p "$state"
# It is run where the user is, for whom the paths in the arguments are.
CGO_ENABLED=0 GOWORK=off go build -C "$KB_ROOT/test/node" -o "$state/load" ./load
# The harness cleans up after itself and must see Ctrl-C as the terminal sends it: no script in between.
trap - EXIT INT TERM HUP
exec "$state/load" --work "$state" "${reference[@]}" --ours "$out/kubelet" \
  --apiserver "$out/stock/kube-apiserver" --apiserver-patched "$out/kube-apiserver" "$@"
