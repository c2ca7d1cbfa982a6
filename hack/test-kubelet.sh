#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-kubelet.sh [GO TEST ARGUMENTS]
#
# Applies the series unless it is applied, builds the patched kubelet, and starts it with every kind of container
# restart configuration (test/kubelet). With -v it prints the result of each, and with STOCK_KUBELET=FILE in the
# environment also that kubelet's results for the same configurations.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help

need go
"$KB_HACK/build.sh" --check || exit 1
apply_series
"$KB_HACK/build.sh" kubelet || exit 1
export KUBELET=$OUTPUT_DIR/$VERSION/kubelet
say "Starting $KUBELET with every kind of configuration"
cd "$KB_ROOT"
# The test cache does not notice a changed kubelet, so -count=1 bypasses it.
GOWORK=$KB_ROOT/go.work go test -count=1 "$@" ./test/kubelet
