#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Functions for the scripts in this directory, which source this file.
#
# shellcheck disable=SC2034 # variables are for the scripts that source this

set -euo pipefail
export LC_ALL=C

# Paths are absolute, because scripts change the working directory.
KB_HACK=$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)
KB_ROOT=${KB_HACK%/*}

# Variables that a user may set. The last one is for tests: the directory to use instead of _output.
KUBE_ROOT=${KUBE_ROOT:-}
RUNTIME=${RUNTIME:-containerd}
OUTPUT_DIR=${KB_OUTPUT_DIR:-$KB_ROOT/_output}
[[ $OUTPUT_DIR == /* ]] || OUTPUT_DIR=$PWD/$OUTPUT_DIR
# Set by scripts for one call of a function; a value from the environment does not count.
STREAM=''

say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
# die MESSAGE [DETAIL...]: each DETAIL goes on its own line.
die() {
  local first=$1 line
  shift
  printf 'error: %s\n' "$first" >&2
  for line in "$@"; do
    printf '%s\n' "$line" | while IFS= read -r l; do printf '       %s\n' "$l"; done >&2
  done
  exit 1
}

# show_help prints the comment at the top of the script, without its license line, and exits.
show_help() {
  sed -n '4,/^$/s/^# \{0,1\}//p' "$0"
  exit 0
}

# ---- cleanup, also after Ctrl-C -------------------------------------------------------------------------------------

on_exit() { KB_CLEANUPS+=("$1"); }
run_cleanups() {
  local rc=$? i
  trap '' INT TERM HUP
  trap - EXIT
  set +e
  for ((i = ${#KB_CLEANUPS[@]} - 1; i >= 0; i--)); do eval "${KB_CLEANUPS[i]}"; done
  exit "$rc"
}
# own_cleanups is for a subshell, which has a copy of the caller's cleanups and not its trap.
own_cleanups() {
  KB_CLEANUPS=()
  trap run_cleanups EXIT
}
own_cleanups
trap 'echo "interrupted" >&2; exit 130' INT
trap 'echo "terminated" >&2; exit 143' TERM HUP

# scratch_dir VAR [PARENT] makes a directory that is removed when the script ends. It also removes the directories of killed
# scripts: their names contain the process ID of the owner.
scratch_dir() {
  local -n scratch_out=$1
  local parent=${2:-$OUTPUT_DIR} old owner
  mkdir -p "$parent" || die "cannot create $parent"
  for old in "$parent"/.scratch.*; do
    owner=${old##*/.scratch.}
    # For the process of another user kill fails, and so would removing its directory.
    [[ -d $old && -O $old ]] || continue
    kill -0 "${owner%%.*}" 2>/dev/null || rm -rf "$old" || true
  done
  scratch_out=$(mktemp -d "$parent/.scratch.$$.XXXXXXXX") || die "cannot create a scratch directory in $parent"
  on_exit "rm -rf $(printf %q "$scratch_out")"
}

# ---- tools ----------------------------------------------------------------------------------------------------------

need() {
  local tool missing=()
  for tool in "$@"; do command -v "$tool" >/dev/null 2>&1 || missing+=("$tool"); done
  ((${#missing[@]} == 0)) && return
  local hints=()
  for tool in "${missing[@]}"; do
    case $tool in
      go) hints+=("go: install Go 1.26 or newer and put its bin directory on PATH") ;;
      etcd) hints+=("etcd: on Debian or Ubuntu: apt-get install etcd-server") ;;
      gcc) hints+=("gcc: on Debian or Ubuntu: apt-get install gcc libc6-dev") ;;
      busybox) hints+=("busybox: on Debian or Ubuntu: apt-get install busybox-static") ;;
      *) hints+=("$tool: on Debian or Ubuntu: apt-get install $tool") ;;
    esac
  done
  die "missing on PATH: ${missing[*]}" "${hints[@]}"
}

# go_env_for_tree DIR sets the environment for building a kubernetes tree: with its own go.work (releases before 1.30 have
# none) and without the user's Go settings. No variable is empty, because go would then use the value that `go env -w` wrote.
#   -trimpath       removes paths from the objects, so that trees in different directories share one build cache
#   CGO_ENABLED=0   makes a kubelet that runs with any C library, and is the same with and without gcc on this machine;
#                   also for the tests, which share the build cache
go_env_for_tree() {
  export GOFLAGS='-trimpath -buildvcs=false' GO111MODULE=on GOWORK=off CGO_ENABLED=0
  [[ ! -f $1/go.work ]] || GOWORK=$1/go.work
}

# check_go fails if no Go is new enough for TREE. The go command decides that, because with GOTOOLCHAIN it may download a newer one.
check_go() {
  need go
  local out
  out=$(go_env_for_tree "$TREE" && cd "$TREE" && go list -m 2>&1) || die "$(go version 2>&1) cannot build $TREE:" "$out"
}

# keep_work_sum DIR: go may add checksums to a tree's go.work.sum; this restores the file at the end.
keep_work_sum() {
  scratch_dir KB_WORK_SUM
  [[ ! -f $1/go.work.sum ]] || cp -p "$1/go.work.sum" "$KB_WORK_SUM/"
  on_exit "restore_work_sum $(printf '%q %q' "$1" "$KB_WORK_SUM")"
}
restore_work_sum() {
  if [[ ! -f $2/go.work.sum ]]; then
    rm -f "$1/go.work.sum"
  elif ! cmp -s "$1/go.work.sum" "$2/go.work.sum"; then
    cp -p "$2/go.work.sum" "$1/"
  fi
}

# ---- long commands --------------------------------------------------------------------------------------------------

# run_long LABEL LOG COMMAND...: runs COMMAND with its output in LOG and prints a line every 15 s.
# With STREAM=1 it also shows the output. Returns the command's status.
run_long() {
  local label=$1 log=$2 pid start=$SECONDS last=$SECONDS n rc=0
  shift 2
  : >"$log"
  if [[ -n $STREAM ]]; then
    (
      set -o pipefail
      "$@" 2>&1 | tee "$log"
    ) &
  else
    "$@" >"$log" 2>&1 &
  fi
  pid=$!
  on_exit "kill_tree $pid"
  while kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS - start < 3)); then sleep 0.1; else sleep 0.5; fi
    if ((SECONDS - last >= 15)); then
      last=$SECONDS
      n=$(grep -cE '^[A-Za-z0-9._/-]+$' "$log" || true)
      if [[ -z $STREAM && $n -gt 0 ]]; then
        note "$label: $((SECONDS - start)) s, $n packages compiled"
      else
        note "$label: $((SECONDS - start)) s"
      fi
    fi
  done
  wait "$pid" || rc=$?
  unset "KB_CLEANUPS[$((${#KB_CLEANUPS[@]} - 1))]"
  KB_CLEANUPS=("${KB_CLEANUPS[@]}")
  LONG_SECONDS=$((SECONDS - start))
  return "$rc"
}

# kill_tree PID ends PID and its descendants. Background jobs of a script do not get the terminal's Ctrl-C.
kill_tree() {
  local child
  for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null || pgrep -P "$1" 2>/dev/null); do kill_tree "$child"; done
  kill "$1" 2>/dev/null || true
}

# show_errors LOG prints LOG without the package names that `go build -v` prints.
show_errors() { grep -vE '^[a-z0-9][A-Za-z0-9._/-]*$|^go: downloading ' "$1" | tail -n 60 >&2 || true; }

# one_at_a_time waits until no other build of this size runs.
one_at_a_time() {
  command -v flock >/dev/null 2>&1 || return 0
  mkdir -p "$OUTPUT_DIR"
  exec 9>>"$OUTPUT_DIR/.build.lock"
  flock -n 9 && return 0
  say "Waiting for another build in $OUTPUT_DIR to end"
  flock 9
}

# ---- trees ----------------------------------------------------------------------------------------------------------

patchset() { "$KB_HACK/patchset.sh" "$@"; }

pages() { "$KB_HACK/pages.sh" "$@"; }

# load_tree [--applied] gets a missing tree and sets TREE, VERSION, COMMIT, COMMIT_TIME and TREE_STATE (clean or dirty). If the series is
# checked out, BRANCH and BASE are its branch and the commit it starts at. --applied fails if it is not. EXACT is 1 if the tree is
# exactly a release with a series.
load_tree() {
  local variables
  variables=$(patchset tree "$@") || exit 1
  eval "$variables"
}

# apply_series applies the series unless it is applied, and loads the tree. If that is a whole series on a release, it sets record to the
# flag of a harness that stores the result of the check for the series in its current state. The check is named as the script.
apply_series() {
  patchset apply --keep || exit 1
  load_tree --applied
  record=()
  if [[ -n $EXACT && -z $KUBE_ROOT${SERIES:-}${SKIP:-} ]]; then
    KB_CHECKED=$(pages identity "$VERSION" "$(basename "$0" .sh)") || exit 1
    export KB_CHECKED KB_ROOT
    record=(-record "$KB_ROOT/_output/bin/pages")
  fi
}

# releases prints the releases that the series were made on, newest first.
releases() { sed -n 's/^tag: *//p' "$KB_ROOT"/patches/v*/BASE | sort -rV; }

# ---- kubelets to compare --------------------------------------------------------------------------------------------

# prepare_kubelets PROGRAM...: applies the series unless it is applied, builds the programs from the patched tree, and builds
# the reference: the stock ones of kubelet and kube-apiserver among the programs. With BASE_KUBELET=FILE in the environment,
# that kubelet replaces the stock one. Sets OUT, the directory of the programs, and REFERENCE, the flag that names the
# reference kubelet.
prepare_kubelets() {
  local base='' program reference=()
  if [[ -n ${BASE_KUBELET:-} ]]; then
    base=$(realpath -- "$BASE_KUBELET")
    [[ -x $base ]] || die "BASE_KUBELET=$BASE_KUBELET is not an executable file"
  fi
  for program; do
    case $program in
      kubelet) [[ -n $base ]] || reference+=(kubelet) ;;
      kube-apiserver) reference+=(kube-apiserver) ;;
    esac
  done
  "$KB_HACK/build.sh" --check || exit 1
  apply_series
  "$KB_HACK/build.sh" "$@" || exit 1
  ((${#reference[@]} == 0)) || "$KB_HACK/build.sh" --stock "${reference[@]}" || exit 1
  OUT=$(cd "$OUTPUT_DIR/$VERSION" && pwd -P)
  REFERENCE=(--stock "$OUT/stock/kubelet")
  [[ -z $base ]] || REFERENCE=(--base "$base")
}

# ---- upstream's tests -----------------------------------------------------------------------------------------------

# shellcheck source=hack/vm.sh
[[ -z ${NODE_VM:-} ]] || source "$KB_HACK/vm.sh"

# run_e2e ARGUMENT... replaces the script by test/node/e2e. The harness cleans up after itself, and must get a Ctrl-C
# directly from the terminal.
run_e2e() {
  local state=$OUTPUT_DIR/node
  say "Running on a real node"
  mkdir -p "$state"
  (cd "$KB_ROOT" && CGO_ENABLED=0 GOWORK=$KB_ROOT/go.work GOFLAGS=-buildvcs=false go build -o "$state/crashloop" ./crashloop)
  cd "$KB_ROOT/test/node"
  CGO_ENABLED=0 GOWORK=off go test -c -o "$state/e2e.test" ./e2e
  [[ -z ${NODE_VM:-} ]] || run_in_vm "$state" -crashloop "$state/crashloop" "$@"
  trap - EXIT INT TERM HUP
  exec "$state/e2e.test" -work "$state" -crashloop "$state/crashloop" "$@"
}

# need_busybox sets busybox to a binary that works in an image.
need_busybox() {
  need busybox
  busybox=$(command -v busybox)
  if ldd "$busybox" >/dev/null 2>&1; then
    die "$busybox is not linked statically, so it does not work in an image: on Debian or Ubuntu: apt-get install busybox-static"
  fi
}

# upstream_tags IMAGE prints the tags of an image that upstream's tests in the tree use, newest last.
upstream_tags() { sed -nE 's/.*= Config\{[^,]*, "'"$1"'", "([^"]*)"\}.*/\1/p' "$TREE/test/utils/image/manifest.go" | sort -uV; }

# upstream_tag IMAGE prints the newest of them. It fails if there is none.
upstream_tag() {
  local tag
  tag=$(upstream_tags "$1" | tail -n1)
  [[ -n $tag ]] || die "$TREE/test/utils/image/manifest.go does not say which $1 upstream's tests use"
  printf '%s' "$tag"
}

# build_for_tests SRC WHAT COMMAND... runs the command that builds WHAT in a tree.
# It runs in a subshell, which keeps the tree's Go settings from the caller.
build_for_tests() (
  own_cleanups
  local src=$1 what=$2
  shift 2
  one_at_a_time
  go_env_for_tree "$src"
  scratch_dir WORK
  keep_work_sum "$src"
  say "Building $what in $src"
  run_long "$what" "$WORK/log" env -C "$src" "$@" && return
  show_errors "$WORK/log"
  die "$what cannot be built in $src"
)

# runtime_needs sets needs to the programs that the container runtime in RUNTIME needs.
runtime_needs() {
  case $RUNTIME in
    containerd) needs=(runc) ;;
    crio) needs=(crun conmon skopeo gcc) ;;
    crio-runc) needs=(runc conmon skopeo gcc) ;;
    *) die "RUNTIME=$RUNTIME is none of containerd, crio and crio-runc" ;;
  esac
}
