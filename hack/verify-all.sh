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
#   others   the series applies to the other releases that BASE names ("applies: v1.37.0 v1.37.2"), and reverses
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
[[ -z $KUBE_ROOT${KUBE_VERSION:-}${SERIES:-}${SKIP:-}${VENDOR:-} ]] ||
  die "verify-all takes no KUBE_ROOT, KUBE_VERSION, SERIES, SKIP or VENDOR: it checks whole series on the releases that they were made on"
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
  [[ ! -s $OUTPUT_DIR/boilerplate.out ]] || die "files without upstream's licence header:" "$(<"$OUTPUT_DIR/boilerplate.out")"
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
      trap run_cleanups EXIT
      KB_CLEANUPS=()
      scratch_dir KB_OUTPUT_DIR
      export KB_OUTPUT_DIR KUBE_VERSION=$release
      patchset apply && patchset reverse
    ) || return 1
  done
}

# check_vendor tests the series with the library in vendor, on a clone of the release that has a vendor folder.
check_vendor() {
  patchset fetch && load_tree
  local from=$TREE
  scratch_dir work
  export KUBE_ROOT=$work/kubernetes VENDOR=1 GIT_AUTHOR_NAME=vendor GIT_AUTHOR_EMAIL=vendor@localhost GIT_COMMITTER_NAME=vendor GIT_COMMITTER_EMAIL=vendor@localhost
  git clone -q --shared --no-checkout "$from" "$KUBE_ROOT"
  cd "$KUBE_ROOT"
  git checkout -q -B release "$KUBE_VERSION"
  git branch -q -D "kubelet-backoff-${KUBE_VERSION%.*}" 2>/dev/null || true
  go_env_for_tree "$KUBE_ROOT"
  go work vendor || die "go work vendor cannot make the vendor folder of $KUBE_VERSION"
  git add -f vendor
  git commit -q -m vendor
  patchset apply || return 1
  if ! lowered "$KUBE_ROOT/go.mod"; then
    (
      export GOPRIVATE=github.com/kubelet-backoff/kubelet-backoff GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0="url.file://$KB_ROOT.insteadOf"
      export GIT_CONFIG_VALUE_0=https://github.com/kubelet-backoff/kubelet-backoff GIT_CONFIG_KEY_1=core.attributesFile GIT_CONFIG_VALUE_1=/dev/null
      go work vendor
    ) || die "go work vendor fails with the library in vendor"
    git add -f -A vendor
    [[ -z $(git status --porcelain) ]] || die "go work vendor changes what VENDOR=1 made:" "$(git status --porcelain | head -n 20)"
  fi
  "$KB_HACK/test-patched.sh" -race || return 1
  go build -o "$work/kubelet" ./cmd/kubelet || die "the kubelet with the library in vendor does not build"
}

# lowered GO.MOD reports whether the tree requires an older version of a module than the library does indirectly: go work vendor would
# raise it, although only tests of the library's requirements use it.
lowered() {
  local module version old
  while read -r module version _; do
    old=$(awk -v m="$module" '$1 == m { print $2 }' "$1")
    if [[ -n $old && $old != "$version" && $(printf '%s\n' "$old" "$version" | sort -V | head -n 1) == "$old" ]]; then
      note "not compared with go work vendor, which would also raise $module from $old to $version"
      return 0
    fi
  done < <(grep '// indirect' "$KB_ROOT/go.mod")
  return 1
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
    (trap run_cleanups EXIT; KB_CLEANUPS=(); set +e; "check_$check") 2>&1 | tee "$log" || result=(--failed)
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
