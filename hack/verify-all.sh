#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# verify-all.sh [--only RELEASES] [--check CHECKS]
#
# Checks each series on the release that it was made on, each check for all series, the newest first:
#
#   patches  patchset.sh verify --no-build, and upstream's verify-boilerplate.sh
#   tests    test-patched.sh -race
#   build    patchset.sh verify --no-form, and upstream's verify-featuregates.sh
#   others   the series applies to the other releases that BASE names ("applies: v1.37.0 v1.37.2"), and reverses; needs no modules
#            that the series does not change
#   vendor   the tests, and a build of kubelet, with the library in vendor; for the series whose BASE says "vendor: yes"
#
# RELEASES is a list such as v1.36,v1.35, or newest; CHECKS a list such as patches,tests. Logs are in _output/releases. A check that
# passed is not repeated until the series changes. After a failure, a series gets no later check.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
only='' checks=patches,tests,build,others,vendor
while (($# > 0)); do
  case $1 in
    --only) only=${2:?--only needs a list of releases} ;;
    --check) checks=${2:?--check needs a list of checks} ;;
    -h | --help) show_help ;;
    *) die "verify-all.sh: unknown argument \"$1\"" ;;
  esac
  shift 2
done
[[ -z $KUBE_ROOT${KUBE_VERSION:-}${SERIES:-}${SKIP:-} ]] ||
  die "verify-all takes no KUBE_ROOT, KUBE_VERSION, SERIES or SKIP: it checks whole series on the releases that they were made on"
export SERIES=all
all=$(releases)
[[ $only != newest ]] || only=$(head -n 1 <<<"$all")
selected=()
for release in $all; do
  [[ -n $only && ! ,$only, =~ ,(${release%.*}|$release), ]] || selected+=("$release")
done
((${#selected[@]} > 0)) || die "--only $only: there is no such series; they are made on:" "$all"

check_patches() { patchset verify --no-build && patchset apply && boilerplate; }
check_tests() { patchset apply && "$KB_HACK/test-patched.sh" -race; }
check_build() { patchset verify --no-form && patchset apply && feature_gates; }

# boilerplate runs upstream's verify-boilerplate.sh. Before v1.35 it requires a year, which later releases forbid in new files.
boilerplate() {
  load_tree --applied
  if grep -q 'Copyright YEAR ' "$TREE/hack/boilerplate/boilerplate.go.txt"; then
    note "skipped: verify-boilerplate.sh of $VERSION requires a year in new files"
    return
  fi
  if ! command -v python3 >/dev/null; then
    note "skipped: upstream's verify-boilerplate.sh needs python3: on Debian or Ubuntu: apt-get install python3"
    return
  fi
  # In a tree from the module proxy no file is executable. Without arguments, the script skips a tree below a directory "_output".
  (
    cd "$TREE"
    mapfile -t files < <(git diff --name-only --diff-filter=d --no-renames "$BASE" HEAD)
    python3 hack/boilerplate/boilerplate.py --rootdir="$TREE" --boilerplate-dir="$TREE/hack/boilerplate" "${files[@]}"
  ) >"$OUTPUT_DIR/boilerplate.out" || die "upstream's boilerplate.py fails:" "$(<"$OUTPUT_DIR/boilerplate.out")"
  [[ ! -s $OUTPUT_DIR/boilerplate.out ]] || die "files without upstream's license header:" "$(<"$OUTPUT_DIR/boilerplate.out")"
  rm -f "$OUTPUT_DIR/boilerplate.out"
  note "upstream's boilerplate.py passes"
}

# feature_gates runs upstream's verify-featuregates.sh with the installed Go and its caches.
feature_gates() {
  load_tree --applied
  if [[ ! -e $TREE/hack/verify-featuregates.sh ]]; then
    note "skipped: $VERSION has no verify-featuregates.sh"
    return
  fi
  (
    GOCACHE=$(go env GOCACHE) GOMODCACHE=$(go env GOMODCACHE) GOFLAGS='-trimpath -buildvcs=false'
    export GOCACHE GOMODCACHE GOFLAGS CGO_ENABLED=0 FORCE_HOST_GO=y
    cd "$TREE" && bash hack/verify-featuregates.sh
  ) || die "upstream's verify-featuregates.sh fails in $TREE"
  note "upstream's verify-featuregates.sh passes"
}

# line KEY prints the value of a line of BASE.
line() { sed -n "s/^$1: *//p" "$KB_ROOT/patches/${KUBE_VERSION%.*}/BASE"; }

check_others() {
  local release
  for release in $(line applies); do
    (
      own_cleanups
      scratch_dir KB_OUTPUT_DIR
      export KB_OUTPUT_DIR KUBE_VERSION=$release
      patchset fetch --changed && patchset apply && patchset reverse
    ) || return 1
  done
}

# check_vendor tests the series with the library in vendor, on a clone of the release that has a vendor folder.
check_vendor() {
  patchset fetch && load_tree
  local from=$TREE work
  scratch_dir work
  export KUBE_ROOT=$work/kubernetes GIT_AUTHOR_NAME=vendor GIT_AUTHOR_EMAIL=vendor@localhost GIT_COMMITTER_NAME=vendor GIT_COMMITTER_EMAIL=vendor@localhost
  git clone -q --shared --no-checkout "$from" "$KUBE_ROOT"
  cd "$KUBE_ROOT"
  git checkout -q -B release "$KUBE_VERSION"
  git branch -q -D "kubelet-backoff-${KUBE_VERSION%.*}" 2>/dev/null || true
  go_env_for_tree "$KUBE_ROOT"
  go work vendor || die "go work vendor cannot make the vendor folder of $KUBE_VERSION"
  git add -f vendor
  git commit -q -m vendor
  patchset apply && "$KB_HACK/vendor.sh" || return 1
  "$KB_HACK/test-patched.sh" -race || return 1
  go build -o "$work/kubelet" ./cmd/kubelet || die "the kubelet with the library in vendor does not build"
}

for check in ${checks//,/ }; do
  declare -F "check_$check" >/dev/null || die "\"$check\" is not a check: they are patches, tests, build, others, vendor"
done
failed=' ' summary=()
for check in ${checks//,/ }; do
  for release in "${selected[@]}"; do
    export KUBE_VERSION=$release
    [[ $failed != *" $release "* ]] || continue
    [[ $check != others || -n $(line applies) ]] && [[ $check != vendor || $(line vendor) == yes ]] || continue
    if at=$(pages passed "$release" "$check" 2>/dev/null); then
      say "$release $check: passed on $at"
      continue
    fi
    KB_CHECKED=$(pages identity "$release" "$check") || exit 1
    export KB_CHECKED
    say "$release $check"
    log=$OUTPUT_DIR/releases/$release/$check.log start=$SECONDS result=()
    mkdir -p "${log%/*}"
    # A subshell has the script's cleanups, and would not run its own.
    (own_cleanups; set +e; "check_$check") 2>&1 | tee "$log" || result=(--failed)
    details=''
    [[ $check != others ]] || details=$(line applies)
    pages record "$check" ${details:+"$details"} "${result[@]}" --seconds $((SECONDS - start)) || result=(--failed)
    if ((${#result[@]} > 0)); then
      failed+="$release " summary+=("$release $check fails: $log")
    fi
  done
done
((${#summary[@]} == 0)) || die "not in order:" "${summary[@]}"
say "All series are in order"
