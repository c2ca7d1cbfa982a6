#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the scripts in this directory share. Sourced, never run.
#
# shellcheck disable=SC2034 # variables are for the scripts that source this
#
# Words used throughout:
#   tree     a kubernetes source tree: KUBE_ROOT, or _output/VERSION/kubernetes as hack/fetch.sh makes it
#   series   one directory under patches/: BASE, series and the patches it names
#   branch   kubelet-backoff-<series>: the series applied, one commit per patch
#
# What is known about an applied series is kept in the tree's git config, in the branch's own section, so that
# deleting the branch forgets it:
#   branch.<name>.kubelet-backoff-base     the commit the series was applied to
#   branch.<name>.kubelet-backoff-origin   what was checked out before: refs/heads/x, or a commit
#   branch.<name>.kubelet-backoff-tip      the last commit of the complete series; missing while it is incomplete
#   branch.<name>.kubelet-backoff-digest   a digest of the patches that were applied
#   kubelet-backoff.made-repository        hack/apply.sh made this repository around a plain source tree

set -euo pipefail
export LC_ALL=C

# Paths are absolute, so that they mean the same wherever a script changes to.
KB_HACK=$(cd "${BASH_SOURCE[0]%/*}" && pwd -P)
KB_ROOT=${KB_HACK%/*}
KB_MODULE=github.com/kubelet-backoff/kubelet-backoff
BRANCH_PREFIX=kubelet-backoff-
IDENT_NAME=kubelet-backoff
IDENT_EMAIL=noreply@kubelet-backoff.invalid

# What a user may set. The last three are for tests and for trying things out: the directories in the place of _output
# and patches, and the name of the series to take, whatever the tree's release.
KUBE_ROOT=${KUBE_ROOT:-}
KUBE_VERSION=${KUBE_VERSION:-}
SKIP=${SKIP:-}
OUTPUT_DIR=${KB_OUTPUT_DIR:-$KB_ROOT/_output}
PATCHES_DIR=${KB_PATCHES_DIR:-$KB_ROOT/patches}
KB_SERIES=${KB_SERIES:-}
[[ $OUTPUT_DIR == /* ]] || OUTPUT_DIR=$PWD/$OUTPUT_DIR
[[ $PATCHES_DIR == /* ]] || PATCHES_DIR=$PWD/$PATCHES_DIR
# Set by scripts for one call of a function; whatever the environment has under these names does not count.
STREAM='' NO_CHECKOUT=''

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

# ---- cleaning up, also after Ctrl-C ---------------------------------------------------------------------------------

KB_CLEANUPS=()
on_exit() { KB_CLEANUPS+=("$1"); }
run_cleanups() {
  local rc=$? i
  trap '' INT TERM HUP
  trap - EXIT
  set +e
  for ((i = ${#KB_CLEANUPS[@]} - 1; i >= 0; i--)); do eval "${KB_CLEANUPS[i]}"; done
  exit "$rc"
}
trap run_cleanups EXIT
trap 'echo "interrupted" >&2; exit 130' INT
trap 'echo "terminated" >&2; exit 143' TERM HUP

# scratch_dir VAR [PARENT]: a directory that is gone when the script ends. What scripts that were killed left there goes
# too; the name holds the process that owns it.
scratch_dir() {
  local -n scratch_out=$1
  local parent=${2:-$OUTPUT_DIR} old owner
  mkdir -p "$parent" || die "cannot create $parent"
  for old in "$parent"/.scratch.*; do
    owner=${old##*/.scratch.}
    # The process of another user cannot be asked after, and its directory not be removed.
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
      busybox) hints+=("busybox: on Debian or Ubuntu: apt-get install busybox-static") ;;
      *) hints+=("$tool: on Debian or Ubuntu: apt-get install $tool") ;;
    esac
  done
  die "missing on PATH: ${missing[*]}" "${hints[@]}"
}

# need_git makes every git call below independent of the user's and the machine's git configuration: the bytes and the
# commits must be the same for everyone. safe.directory alone is carried over, because it is about permission.
need_git() {
  need git
  local v have=()
  v=$(git version)
  v=${v#git version }
  if [[ $v =~ ^([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] < 2 || (BASH_REMATCH[1] == 2 && BASH_REMATCH[2] < 32))); then
    die "git $v is too old: 2.32 or newer is needed"
  fi
  mapfile -t have < <(cd / && git config --get-all safe.directory 2>/dev/null)
  # shellcheck disable=SC2046 # a list of names
  unset $(git rev-parse --local-env-vars)
  export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_EDITOR=: GIT_PAGER=cat
  unset GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_DATE GIT_DIFF_OPTS GIT_EXTERNAL_DIFF
  export GIT_COMMITTER_NAME=$IDENT_NAME GIT_COMMITTER_EMAIL=$IDENT_EMAIL
  local set_=(
    core.autocrlf=false core.safecrlf=false core.attributesFile=/dev/null core.hooksPath=/dev/null
    core.fsmonitor=false core.quotePath=false core.commentChar='#' commit.gpgSign=false tag.gpgSign=false am.threeWay=false
    am.keepcr=false mailinfo.scissors=false apply.whitespace=nowarn apply.ignoreWhitespace=no
    advice.detachedHead=false init.defaultBranch=base gc.auto=0 maintenance.auto=false
  )
  local i n=0
  for i in "${set_[@]}"; do
    export "GIT_CONFIG_KEY_$n=${i%%=*}" "GIT_CONFIG_VALUE_$n=${i#*=}"
    n=$((n + 1))
  done
  for i in "${have[@]}"; do
    export "GIT_CONFIG_KEY_$n=safe.directory" "GIT_CONFIG_VALUE_$n=$i"
    n=$((n + 1))
  done
  export GIT_CONFIG_COUNT=$n
}

# go_env_for_tree DIR: a kubernetes tree is built as its own go.work says (releases before 1.30 have none), whatever the
# user's Go settings are. Nothing is left empty: what `go env -w` wrote counts for empty variables.
#   -trimpath       without paths in the objects, trees in different directories share one build cache
#   CGO_ENABLED=0   the kubelet then runs on a node with any C library, and is the same with and without gcc here;
#                   for the tests as well, which share the build cache
go_env_for_tree() {
  export GOFLAGS='-trimpath -buildvcs=false' GO111MODULE=on GOWORK=off CGO_ENABLED=0
  [[ ! -f $1/go.work ]] || GOWORK=$1/go.work
}

# check_go: Go is there, and not older than TREE (if it is there yet) asks for. Whether GOTOOLCHAIN lets go get a newer
# one is for go itself to say.
check_go() {
  need go
  [[ $TREE_KIND != missing ]] || return 0
  local out
  out=$(go_env_for_tree "$TREE" && cd "$TREE" && go list -m 2>&1) || die "$(go version 2>&1) cannot build $TREE:" "$out"
}

# keep_work_sum DIR: go may add checksums to a tree's go.work.sum; the tree is to be left as it was.
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

# ---- long work ------------------------------------------------------------------------------------------------------

# run_long LABEL LOG COMMAND...: runs COMMAND with its output in LOG and prints a line every 15 s.
# With STREAM=1 the output is shown as well, as it comes. Returns the command's status.
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

# kill_tree PID: PID and everything below it. Background jobs of a script do not get the terminal's Ctrl-C.
kill_tree() {
  local child
  for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null || pgrep -P "$1" 2>/dev/null); do kill_tree "$child"; done
  kill "$1" 2>/dev/null || true
}

# show_errors LOG: LOG without the package names that `go build -v` prints.
show_errors() { grep -vE '^[a-z0-9][A-Za-z0-9._/-]*$|^go: downloading ' "$1" | tail -n 60 >&2 || true; }

# one_at_a_time: builds of this size take turns.
one_at_a_time() {
  command -v flock >/dev/null 2>&1 || return 0
  mkdir -p "$OUTPUT_DIR"
  exec 9>>"$OUTPUT_DIR/.build.lock"
  flock -n 9 && return 0
  say "Waiting for another build in $OUTPUT_DIR to end"
  flock 9
}

# ---- versions -------------------------------------------------------------------------------------------------------

VERSION_RE='^v1\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(alpha|beta|rc)\.(0|[1-9][0-9]*))?$'

# normal_version TEXT: v1.37.1 for v1.37.1 and 1.37.1; dies for what is no release.
normal_version() {
  local v=$1
  [[ $v == [0-9]* ]] && v=v$v
  [[ $v =~ $VERSION_RE ]] || die "\"$1\" is not a kubernetes release: it must look like v1.37.1 or v1.38.0-beta.0"
  printf '%s\n' "$v"
}

# release_of TAG: the release in a tag, a fork's suffix dropped: v1.37.1-acme.3 -> v1.37.1.
release_of() {
  [[ $1 =~ ^(v1\.[0-9]+\.[0-9]+)(-(alpha|beta|rc)\.[0-9]+)?([-+.].*)?$ ]] || return 1
  printf '%s%s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
}
minor_of() { printf '%s\n' "$1" | cut -d. -f1,2; }
# version_le A B: A is not newer than B. A pre-release comes before its release.
version_le() { [[ $(printf '%s\n%s\n' "${1//-/\~}" "${2//-/\~}" | sort -V | head -n1) == "${1//-/\~}" ]]; }

# ---- series ---------------------------------------------------------------------------------------------------------

base_field() { sed -n "s/^$2:[[:space:]]*//p" "$1/BASE" | head -n1; }

# all_series: the directories under PATCHES_DIR that hold a series, oldest first.
all_series() {
  local d
  for d in "$PATCHES_DIR"/v*/; do [[ -f ${d}BASE ]] && printf '%s\n' "${d%/}"; done | sort -V
}

describe_series() {
  local d first last found=
  while IFS= read -r d; do
    found=1
    read -r first last < <(base_field "$d" tested) || true
    printf '%s: made on %s, tested from %s to %s\n' "${d##*/}" "$(base_field "$d" tag)" "${first:-?}" "${last:-${first:-?}}"
  done < <(all_series)
  [[ -n $found ]] || printf 'there is no series in %s\n' "$PATCHES_DIR"
}

# default_version: the release that the newest series was made on.
default_version() {
  local d
  d=$(all_series | tail -n1)
  [[ -n $d ]] || die "no series in $PATCHES_DIR, so KUBE_VERSION must be given, e.g. KUBE_VERSION=v1.37.1"
  base_field "$d" tag
}

# load_series DIR: sets SERIES_DIR SERIES_NAME BASE_TAG TESTED_FIRST TESTED_LAST BRANCH ALL ACTIVE DROPPED.
load_series() {
  SERIES_DIR=$1 SERIES_NAME=${1##*/}
  BRANCH=$BRANCH_PREFIX$SERIES_NAME
  [[ -f $SERIES_DIR/BASE ]] || die "$SERIES_DIR/BASE is missing: it must hold \"tag: v1.37.1\" and \"tested: FIRST LAST\""
  BASE_TAG=$(base_field "$SERIES_DIR" tag)
  [[ $BASE_TAG =~ $VERSION_RE ]] || die "$SERIES_DIR/BASE: \"tag: $BASE_TAG\" must name a release, such as \"tag: v1.37.1\""
  read -r TESTED_FIRST TESTED_LAST < <(base_field "$SERIES_DIR" tested) || true
  TESTED_FIRST=${TESTED_FIRST:-$BASE_TAG} TESTED_LAST=${TESTED_LAST:-${TESTED_FIRST:-$BASE_TAG}}
  local line n drop
  ACTIVE=() ALL=() DROPPED=()
  local -A listed=()
  if [[ -f $SERIES_DIR/series ]]; then
    while IFS= read -r line || [[ -n $line ]]; do
      line=${line%$'\r'}
      line="${line#"${line%%[![:space:]]*}"}" line="${line%"${line##*[![:space:]]}"}"
      [[ -z $line || $line == \#* ]] && continue
      [[ $line =~ ^[0-9]{4}-.*\.patch$ ]] || die "$SERIES_DIR/series: \"$line\" is not the name of a patch (NNNN-words.patch)"
      [[ -f $SERIES_DIR/$line ]] || die "$SERIES_DIR/series names $line, but there is no such file"
      [[ -z ${listed[$line]:-} ]] || die "$SERIES_DIR/series names $line twice"
      listed[$line]=1
      n=$(patch_number "$line")
      for drop in $SKIP; do
        [[ $drop =~ ^[0-9]+$ ]] || die "SKIP=\"$SKIP\": patch numbers are expected, e.g. \"4\" or \"4 6\""
        ((10#$drop == n)) && continue 2
      done
      ACTIVE+=("$line")
    done <"$SERIES_DIR/series"
  fi
  while IFS= read -r line; do
    ALL+=("$line")
    contains "$line" "${ACTIVE[@]}" || DROPPED+=("$line")
  done < <(cd "$SERIES_DIR" && for f in [0-9][0-9][0-9][0-9]-*.patch; do [[ -f $f ]] && printf '%s\n' "$f"; done)
}

contains() {
  local x=$1 y
  shift
  for y in "$@"; do [[ $x == "$y" ]] && return 0; done
  return 1
}
patch_number() { printf '%d\n' "$((10#${1:0:4}))"; }

# trailer PATCH KEY: the values of a trailer of the patch's commit message.
trailer() {
  patch_message "$1" | git interpret-trailers --parse 2>/dev/null | sed -n "s/^$2:[[:space:]]*//p"
}
# patch_message PATCH: the commit message in a mail, without its headers and its diff.
patch_message() { awk 'body && (/^---$/ || /^diff --git /) {exit} body {print} !body && /^$/ {body = 1; print "subject\n"}' "$1"; }

# depends_on PATCH: the numbers its Depends-On trailers name, one to a line.
depends_on() {
  local word
  trailer "$1" Depends-On | tr -s ',; ' '\n' | while IFS= read -r word; do
    case $word in
      '' | none | None | nothing | patch | and | '-') ;;
      *)
        [[ $word =~ ^\#?([0-9]{1,4})([-.].*)?$ ]] || die "${1##*/}: Depends-On: \"$word\" is neither a patch number nor \"none\""
        printf '%d\n' "$((10#${BASH_REMATCH[1]}))"
        ;;
    esac
  done
}

# check_dependencies: no patch stands without the patches it depends on.
check_dependencies() {
  local p q n ok deps
  for p in "${ACTIVE[@]}"; do
    deps=$(depends_on "$SERIES_DIR/$p") || exit 1
    for n in $deps; do
      ok=
      for q in "${ACTIVE[@]}"; do
        [[ $q == "$p" ]] && break
        (($(patch_number "$q") == n)) && ok=1
      done
      [[ -n $ok ]] || die "$p depends on patch $n, which the series does not have before it" \
        "Leave out ${p:0:4} as well, or put patch $n back into $SERIES_DIR/series."
    done
  done
}

# series_digest: changes when the patches that are to be applied change.
series_digest() {
  local p
  for p in "${ACTIVE[@]}"; do
    printf '%s %s\n' "$(git hash-object --no-filters "$SERIES_DIR/$p")" "$p"
  done | git hash-object --stdin
}

# created_paths [PATCH...]: the files that the patches create.
created_paths() {
  local p
  for p in "$@"; do
    awk '/^diff --git a\// {new = 0} /^new file mode / {new = 1} new && /^\+\+\+ b\// {print substr($0, 7); new = 0}' "$SERIES_DIR/$p"
  done | sort -u
}

# touched_paths [PATCH...]: every file that the patches name.
touched_paths() {
  local p
  for p in "$@"; do sed -n 's#^diff --git a/.* b/\(.*\)$#\1#p' "$SERIES_DIR/$p"; done | sort -u
}

# touched_packages TREE [PATCH...]: the Go packages of those files, as `go test` in TREE takes them. What is below
# testdata belongs to the package above it.
touched_packages() {
  local tree=$1 dir
  shift
  touched_paths "$@" | sed -nE 's#/testdata/.*##p; t; s#/[^/]*\.go$##p' | sort -u | while IFS= read -r dir; do
    ls "$tree/$dir"/*.go >/dev/null 2>&1 || continue
    case $dir in
      staging/src/*) printf '%s\n' "${dir#staging/src/}" ;;
      *) printf './%s\n' "$dir" ;;
    esac
  done
}

# pick_series VERSION: loads the series for VERSION. A release of the same minor version outside the tested range is
# tried, because the range only says what was tried already; a release of another minor version is refused.
pick_series() {
  local version=$1 d first last same=
  if [[ -n $KB_SERIES ]]; then
    [[ -f $PATCHES_DIR/$KB_SERIES/BASE ]] || die "KB_SERIES=$KB_SERIES: there is no such series" "$(describe_series)"
    load_series "$PATCHES_DIR/$KB_SERIES"
    return
  fi
  while IFS= read -r d; do
    read -r first last < <(base_field "$d" tested) || true
    last=${last:-$first}
    if [[ -n $first ]] && version_le "$first" "$version" && version_le "$version" "$last"; then
      load_series "$d"
      return
    fi
    [[ ${d##*/} == "$(minor_of "$version")" ]] && same=$d
  done < <(all_series)
  [[ -n $same ]] || die "no series fits kubernetes $version. There are, in $PATCHES_DIR:" "$(describe_series)" \
    "Choose one of these releases with KUBE_VERSION, or try a series on another release with KB_SERIES=NAME."
  load_series "$same"
  note "$version is outside what $SERIES_NAME was tested on ($TESTED_FIRST to $TESTED_LAST); trying it all the same"
}

# ---- trees ----------------------------------------------------------------------------------------------------------

g() { git -C "$TREE" "$@"; }

# locate_tree: sets TREE and TREE_KIND (git, plain or missing). Fetches nothing.
locate_tree() {
  if [[ -n $KUBE_ROOT ]]; then
    [[ -d $KUBE_ROOT ]] || die "KUBE_ROOT=$KUBE_ROOT is not a directory"
    TREE=$(cd "$KUBE_ROOT" && pwd -P) || die "KUBE_ROOT=$KUBE_ROOT cannot be entered"
  else
    VERSION=${KUBE_VERSION:-}
    [[ -n $VERSION ]] || VERSION=$(default_version) || exit 1
    VERSION=$(normal_version "$VERSION") || exit 1
    TREE=$OUTPUT_DIR/$VERSION/kubernetes
    if [[ ! -e $TREE ]]; then
      TREE_KIND=missing
      return
    fi
  fi
  if ! grep -qx 'module k8s.io/kubernetes' "$TREE/go.mod" 2>/dev/null; then
    die "$TREE is not a kubernetes source tree: its go.mod must say \"module k8s.io/kubernetes\"" \
      "$(if [[ -z $KUBE_ROOT ]]; then echo "Remove that directory; hack/fetch.sh then makes it anew."; fi)"
  fi
  # A plain tree may lie inside some other repository: only its own .git counts.
  if [[ -e $TREE/.git ]]; then
    TREE_KIND=git
    g rev-parse --git-dir >/dev/null || die "$TREE/.git is there, but git does not take it for a repository"
    g rev-parse -q --verify 'HEAD^{commit}' >/dev/null || die "the git repository $TREE has no commit"
  else
    TREE_KIND=plain
  fi
}

# tree_version: sets VERSION, the release the tree was made from.
tree_version() {
  local found='' how='' rev tags exact branch
  if [[ -z $KUBE_ROOT ]]; then return; fi
  if [[ $TREE_KIND == git ]]; then
    rev=HEAD
    branch=$(current_branch)
    if [[ $branch == "$BRANCH_PREFIX"* ]]; then rev=$(state "$branch" base || echo HEAD); fi
    tags=$(g tag --list 'v1.*' --points-at "$rev")
    exact=$(grep -E "$VERSION_RE" <<<"$tags" | sort -V | tail -n1 || true)
    if [[ -n $exact ]]; then
      if [[ -n $KUBE_VERSION ]]; then
        VERSION=$(normal_version "$KUBE_VERSION") || exit 1
        grep -qxF "$VERSION" <<<"$tags" || die "KUBE_VERSION is $VERSION, but KUBE_ROOT ($TREE) is at ${exact}" \
          "Check out $VERSION there, or leave KUBE_VERSION unset."
        return
      fi
      VERSION=$exact
      return
    fi
    if [[ -z $KUBE_VERSION ]]; then
      found=$(g describe --tags --abbrev=0 --match 'v1.*' "$rev" 2>/dev/null || true)
      if [[ -n $found ]]; then
        VERSION=$(release_of "$found") || die "$TREE: the nearest tag, $found, is no kubernetes release; set KUBE_VERSION"
        note "$TREE is at no tag; the nearest one before it is $found, so it is taken for $VERSION"
        check_minor
        return
      fi
    fi
  fi
  if [[ -n $KUBE_VERSION ]]; then
    VERSION=$(normal_version "$KUBE_VERSION") || exit 1
    check_minor
    return
  fi
  # What release archives and trees from the module proxy say about themselves. The changelog is not among it: at a
  # tag it still ends with the release before.
  if [[ -f $TREE/version ]] && found=$(release_of "$(head -n1 "$TREE/version")"); then
    how='the file "version"'
  elif [[ -f $TREE/.dockerized-kube-version-defs ]] &&
    found=$(release_of "$(sed -n "s/^KUBE_GIT_VERSION='\(.*\)'/\1/p" "$TREE/.dockerized-kube-version-defs")"); then
    how='the file ".dockerized-kube-version-defs"'
  elif found=$(sed -nE 's#^(require)?[[:space:]]*k8s\.io/api v0\.([0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?)$#v1.\2#p' \
    "$TREE/staging/src/k8s.io/client-go/go.mod" 2>/dev/null | head -n1) && [[ $found =~ $VERSION_RE && $found != v1.0.* ]]; then
    how='the version that staging/src/k8s.io/client-go/go.mod asks of k8s.io/api'
  else
    die "cannot tell which kubernetes release $TREE is: it has no git tag and no version file" \
      "Say it: KUBE_VERSION=v1.37.1 (for example)"
  fi
  VERSION=$found
  note "$TREE is taken for $VERSION, because of $how"
  check_minor
}

# check_minor: the tree's own idea of its minor version must not contradict VERSION.
check_minor() {
  local says
  says=$(sed -n 's/.*DefaultKubeBinaryVersion[[:space:]]*=[[:space:]]*"\(.*\)".*/\1/p' \
    "$TREE/staging/src/k8s.io/component-base/version/base.go" 2>/dev/null | head -n1)
  [[ -z $says || v$says == "$(minor_of "$VERSION")" ]] ||
    die "$TREE says of itself that it is kubernetes $says, so it cannot be $VERSION" "Set KUBE_VERSION to its release."
}

# resolve_tree: TREE, TREE_KIND and VERSION; fetches the tree when it is missing and KUBE_ROOT is not set.
resolve_tree() {
  locate_tree
  if [[ $TREE_KIND == missing ]]; then
    "$KB_HACK/fetch.sh" "$VERSION" || exit 1
    locate_tree
  fi
  tree_version
}

current_branch() { g symbolic-ref -q --short HEAD || true; }
state() { g config --local --get "branch.$1.kubelet-backoff-$2"; }
set_state() { g config --local "branch.$1.kubelet-backoff-$2" "$3"; }
has_branch() { g show-ref -q --verify "refs/heads/$1"; }

# in_progress: what operation, if any, git is in the middle of.
in_progress() {
  local dir
  dir=$(g rev-parse --absolute-git-dir)
  if [[ -d $dir/rebase-apply && -f $dir/rebase-apply/applying ]]; then
    echo "git am"
  elif [[ -d $dir/rebase-apply || -d $dir/rebase-merge ]]; then
    echo "git rebase"
  elif [[ -f $dir/MERGE_HEAD ]]; then
    echo "git merge"
  elif [[ -f $dir/CHERRY_PICK_HEAD ]]; then
    echo "git cherry-pick"
  elif [[ -f $dir/REVERT_HEAD ]]; then
    echo "git revert"
  fi
}

# dirty_files: tracked files with changes, staged or not.
dirty_files() { g status --porcelain --untracked-files=no; }

# require_clean WHAT: refuses changes that WHAT could lose.
require_clean() {
  local dirty count
  dirty=$(dirty_files)
  [[ -n $dirty ]] || return 0
  count=$(wc -l <<<"$dirty")
  die "$TREE has changes that are not committed, so $1 is refused:" "$(head -n 20 <<<"$dirty")" \
    "$( ((count > 20)) && echo "... and $((count - 20)) more")" \
    "Commit or stash them (git stash), or take them back (git checkout -- FILE)."
}

# find_applied_branch: sets BRANCH, SERIES_NAME and BASE to the series branch of TREE; fails where there is none.
find_applied_branch() {
  local b found=()
  b=$(current_branch)
  if [[ $b == "$BRANCH_PREFIX"* ]] && state "$b" base >/dev/null; then
    found=("$b")
  else
    while IFS= read -r b; do
      [[ -z $b ]] || { state "$b" base >/dev/null && found+=("$b"); }
    done < <(g for-each-ref --format='%(refname:short)' "refs/heads/$BRANCH_PREFIX*")
  fi
  ((${#found[@]} > 0)) || return 1
  ((${#found[@]} == 1)) || die "$TREE has several series branches: ${found[*]}" "Check out the one that is meant."
  BRANCH=${found[0]} SERIES_NAME=${found[0]#"$BRANCH_PREFIX"}
  BASE=$(state "$BRANCH" base)
  g rev-parse -q --verify "$BASE^{commit}" >/dev/null ||
    die "$TREE: branch $BRANCH was made on commit $BASE, which is no longer there"
}

# require_on_branch: the tree has the series checked out. Sets BRANCH, SERIES_NAME, BASE.
require_on_branch() {
  [[ $TREE_KIND != missing ]] || die "there is no tree of kubernetes $VERSION yet: run \"make apply\" first"
  if [[ $TREE_KIND == plain ]] || ! find_applied_branch; then
    die "the patches are not applied to $TREE: run \"make apply\" first"
  fi
  [[ $(current_branch) == "$BRANCH" ]] ||
    die "$TREE has \"$(g symbolic-ref -q --short HEAD || g rev-parse --short HEAD)\" checked out, not $BRANCH" \
      "Run \"make apply\", or: git -C $(printf %q "$TREE") checkout $BRANCH"
  state "$BRANCH" tip >/dev/null || die "$TREE: $BRANCH holds only part of the series: run \"make reverse\", then \"make apply\""
}

# neutral_attributes GITDIR: the files are what they are, whatever the tree's own .gitattributes say.
neutral_attributes() {
  mkdir -p "$1/info"
  printf '* -text -ident -eol -filter -working-tree-encoding\n' >"$1/info/attributes"
}

# scratch_repo DIR COMMIT: a repository in DIR that borrows TREE's objects, with COMMIT checked out (detached) and
# nothing written to TREE. With NO_CHECKOUT=1 without files.
scratch_repo() {
  local dir=$1 commit=$2 objects shallow
  mkdir -p "$dir"
  git init -q --template= "$dir"
  objects=$(g rev-parse --git-path objects)
  [[ $objects == /* ]] || objects=$TREE/$objects
  mkdir -p "$dir/.git/objects/info"
  printf '%s\n' "$objects" >"$dir/.git/objects/info/alternates"
  # Where TREE is shallow, this has to stop where it stops.
  shallow=$(g rev-parse --git-path shallow)
  [[ $shallow == /* ]] || shallow=$TREE/$shallow
  [[ ! -f $shallow ]] || cp "$shallow" "$dir/.git/shallow"
  neutral_attributes "$dir/.git"
  git -C "$dir" update-ref --no-deref HEAD "$commit"
  [[ -n $NO_CHECKOUT ]] || git -C "$dir" reset -q --hard
}

# am_patch DIR PATCH LOG: plain `git am` of one patch, with everything that could vary fixed.
am_patch() {
  git -C "$1" am -q --no-3way --no-keep-cr --no-scissors --no-gpg-sign --committer-date-is-author-date "$2" >"$3" 2>&1
}

# explain_am LOG: which files and hunks `git am` could not apply.
explain_am() {
  sed -n -E 's/^error: patch failed: (.*):([0-9]+)$/\1: the hunk at line \2 does not fit/p
    s/^error: (.*): already exists in (index|working directory)$/\1: the patch creates it, but it exists/p
    s/^error: (.*): (does not exist in index|No such file or directory)$/\1: the patch changes it, but it does not exist/p
    s/^error: (corrupt patch at line .*)$/\1/p' "$1" | sort -u
}

# write_patches REPO BASE TIP DIR: the commits BASE..TIP as mails in DIR, the same bytes on every machine.
write_patches() {
  git -C "$1" format-patch -q --zero-commit --no-signature --full-index -N --no-stat -U1 --inter-hunk-context=0 \
    --diff-algorithm=myers --indent-heuristic --no-renames --no-color --no-ext-diff --no-textconv --no-attach --no-thread \
    --no-cover-letter --no-base --no-notes --no-from --subject-prefix=PATCH --suffix=.patch --binary \
    --src-prefix=a/ --dst-prefix=b/ -o "$4" "$2..$3" >/dev/null
}
