#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-patched.sh [GO TEST ARGUMENTS]
#
# Runs `go test` in the patched tree (found as by hack/apply.sh, which must have run): upstream's tests and ours, of
# every package that a patch touches and of those that hold the container back-off. Tests that fail on the unpatched
# release as well are left out by name, with the reason: hack/known-failures.txt.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '4,8s/^# \{0,1\}//p' "$0"; exit 0; }

need go
need_git
locate_tree
require_on_branch
tree_version
load_series "$PATCHES_DIR/$SERIES_NAME"

mapfile -t packages < <(
  {
    touched_packages "$TREE" "${ACTIVE[@]}"
    [[ ! -d $TREE/staging/src/k8s.io/client-go/util/flowcontrol ]] || echo k8s.io/client-go/util/flowcontrol
    for dir in pkg/kubelet/container pkg/kubelet/kuberuntime pkg/kubelet/util/queue pkg/kubelet; do
      [[ ! -d $TREE/$dir ]] || echo "./$dir"
    done
  } | sort -u
)

# known-failures.txt: PACKAGE TEST REASON...
declare -A SKIPS=()
KNOWN=${KNOWN_FAILURES_FILE:-$KB_HACK/known-failures.txt}
while read -r package test reason; do
  [[ -n $package && $package != \#* ]] || continue
  [[ -n $test && -n $reason ]] || die "$KNOWN: \"$package $test $reason\": expected PACKAGE TEST REASON"
  contains "$package" "${packages[@]}" || continue
  dir=$TREE/${package#./}
  [[ $package == ./* ]] || dir=$TREE/staging/src/$package
  grep -qE "^func ${test%%/*}\(" "$dir"/*_test.go || die "$KNOWN: $package has no test ${test%%/*}; remove the line"
  SKIPS[$package]+="${SKIPS[$package]:+|}^${test//\//\$\/^}\$"
  note "left out: $package $test ($reason)"
done < <(cat "$KNOWN" 2>/dev/null || true)

say "Testing ${#packages[@]} packages in $TREE (kubernetes $VERSION, $BRANCH)"
printf '    %s\n' "${packages[@]}"
one_at_a_time
go_env_for_tree
scratch_dir WORK
keep_work_sum "$TREE"
in_src() { cd "$TREE" && "$@"; }
plain=() rc=0 start=$SECONDS
for p in "${packages[@]}"; do [[ -n ${SKIPS[$p]:-} ]] || plain+=("$p"); done
run() { STREAM=1 run_long "go test" "$WORK/log" in_src go test -trimpath "$@" || rc=1; }
((${#plain[@]} == 0)) || run "$@" "${plain[@]}"
for p in "${!SKIPS[@]}"; do run -skip "${SKIPS[$p]}" "$@" "$p"; done
((rc == 0)) || die "tests fail in the patched tree, see above"
say "All ${#packages[@]} packages pass ($((SECONDS - start)) s)"
