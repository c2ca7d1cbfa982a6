#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-patched.sh [GO TEST ARGUMENTS]
#
# Runs `go test` in the patched tree (found as by make apply, which must have run): upstream's tests and ours of
# every package that a patch touches and of the packages with the container back-off.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help

need go
load_tree --applied
touched=$(patchset packages) || exit 1
mapfile -t packages < <(
  {
    printf '%s\n' "$touched"
    [[ ! -d $TREE/staging/src/k8s.io/client-go/util/flowcontrol ]] || echo k8s.io/client-go/util/flowcontrol
    for dir in pkg/kubelet/container pkg/kubelet/kuberuntime pkg/kubelet/util/queue pkg/kubelet; do
      [[ ! -d $TREE/$dir ]] || echo "./$dir"
    done
  } | sort -u
)

say "Testing ${#packages[@]} packages in $TREE (kubernetes $VERSION, $BRANCH)"
printf '    %s\n' "${packages[@]}"
one_at_a_time
go_env_for_tree "$TREE"
# Only the race detector needs cgo.
case " $* " in *' -race '*) export CGO_ENABLED=1 ;; esac
scratch_dir WORK
keep_work_sum "$TREE"
in_src() { cd "$TREE" && "$@"; }
start=$SECONDS
# On a busy machine a package may take longer than the default limit of ten minutes.
STREAM=1 run_long "go test" "$WORK/log" in_src go test -timeout 30m "$@" "${packages[@]}" ||
  die "tests fail in the patched tree, see above:" "$(grep -E -A30 '^ *--- FAIL|^panic:|^WARNING: DATA RACE' "$WORK/log" | head -n 80)"
say "All ${#packages[@]} packages pass ($((SECONDS - start)) s)"
