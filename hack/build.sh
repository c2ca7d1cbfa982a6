#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh [--stock | --check] [kubelet|kube-apiserver|kubelet-jittered|kubelet-short-reset]...
#
# Builds from the current tree, which must have the series applied, to _output/VERSION/kubelet. With --stock it
# builds the release without the series, from a separate checkout, to _output/VERSION/stock/kubelet, and does not change
# the tree. It finds the tree as make apply does. Version stamps are upstream's: v1.37.1+kubelet-backoff, and
# v1.37.1 for --stock. Unlike upstream's, the binaries are linked statically. --check builds nothing: it reports
# whether Go is new enough for the tree, before the series is applied to it. kubelet-jittered is the patched kubelet
# with jitter in its back-off of containers and pods, for make node-load, because no setting turns jitter on.
# kubelet-short-reset resets its back-off after a run of 15 s instead of ten minutes, for make node-e2e.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"

STOCK='' CHECK='' targets=()
while (($# > 0)); do
  case $1 in
    --stock) STOCK=1 ;;
    --check) CHECK=1 ;;
    -h | --help) show_help ;;
    -*) die "build.sh: unknown argument \"$1\"" ;;
    *) targets+=("$1") ;;
  esac
  shift
done
((${#targets[@]} > 0)) || targets=(kubelet)

need go
load_tree
check_go
[[ -z $CHECK ]] || exit 0
[[ -n $STOCK ]] || load_tree --applied
# A variant of a program is built with one expression in one file replaced, without changing the tree: PROGRAM FILE, and
# the two expressions.
declare -A variants=()
[[ -n $STOCK ]] || variants=(
  [kubelet-jittered]='kubelet pkg/kubelet/restart/dobackoff.go
backoff.NewBackOff(curve.Initial, curve.Max)
backoff.NewBackOffWithJitter(curve.Initial, curve.Max, 0.5)'
  [kubelet-short-reset]='kubelet pkg/kubelet/restart/dobackoff.go
FlatReset(backoff.ContainerResetPeriod)
FlatReset(15 * time.Second)'
)

for t in "${targets[@]}"; do
  [[ -z ${variants[$t]:-} ]] || continue
  [[ $t =~ ^[a-z-]+$ && -d $TREE/cmd/$t ]] || die "build.sh: there is no cmd/$t in $TREE"
done

OUT=$OUTPUT_DIR/$VERSION
SRC=$TREE
stamp_version=$VERSION+kubelet-backoff
if [[ -n $STOCK ]]; then
  OUT=$OUT/stock
  stamp_version=$VERSION
fi
mkdir -p "$OUT"
one_at_a_time

if [[ -n $STOCK ]]; then
  SRC=$OUT/kubernetes COMMIT=$BASE COMMIT_TIME=$BASE_TIME TREE_STATE=clean
  if [[ $(git -C "$SRC" rev-parse HEAD 2>/dev/null) != "$BASE" || -n $(git -C "$SRC" status --porcelain) ]]; then
    rm -rf "$SRC"
    git clone -q --shared --no-checkout "$TREE" "$SRC"
    git -C "$SRC" -c core.autocrlf=false -c core.attributesFile=/dev/null -c core.hooksPath=/dev/null checkout -q --detach "$BASE"
  fi
fi

# The stamp depends only on the commit and not on the time, so that a second build finds everything up to date.
ldflags=(-s -w)
stamp() { ldflags+=("-X k8s.io/component-base/version.$1=$2" "-X k8s.io/client-go/pkg/version.$1=$2"); }
stamp gitCommit "$COMMIT"
stamp gitTreeState "$TREE_STATE"
stamp buildDate "$(TZ=UTC printf '%(%Y-%m-%dT%H:%M:%SZ)T' "$COMMIT_TIME")"
IFS=. read -r major minor _ <<<"${VERSION#v}"
stamp gitMajor "$major"
stamp gitMinor "$minor"

go_env_for_tree "$SRC"
in_src() { cd "$SRC" && "$@"; }
scratch_dir WORK
keep_work_sum "$SRC"
common=("${ldflags[@]}")
for t in "${targets[@]}"; do
  program=$t version=$stamp_version args=()
  if [[ -n ${variants[$t]:-} ]]; then
    { read -r program file; IFS= read -r usual; IFS= read -r other; } <<<"${variants[$t]}"
    text=''
    # After make vendor, the tree has the file in vendor.
    [[ -f $SRC/$file ]] || file=vendor/github.com/kubelet-backoff/kubelet-backoff/${file#pkg/kubelet/}
    [[ ! -f $SRC/$file ]] || text=$(<"$SRC/$file")
    [[ $text == *"$usual"* ]] || die "$SRC/$file does not say \"$usual\", which $t replaces"
    printf '%s\n' "${text/"$usual"/"$other"}" >"$OUT/$t.go"
    printf '{"Replace": {"%s": "%s"}}\n' "$SRC/$file" "$OUT/$t.go" >"$OUT/$t.json"
    version+=.${t#"$program"-} args=(-overlay "$OUT/$t.json")
  fi
  ldflags=("${common[@]}")
  stamp gitVersion "$version"
  say "Building $t $version from $SRC"
  if ! run_long "$t" "$WORK/log" in_src go build -v "${args[@]}" -ldflags "${ldflags[*]}" -o "$OUT/$t" "./cmd/$program"; then
    echo "error: $t does not build in $SRC:" >&2
    show_errors "$WORK/log"
    exit 1
  fi
  say "$OUT/$t ($LONG_SECONDS s)"
done
