#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# verify.sh [--no-build]
#
# Proves of the series that fits the tree (found as by hack/apply.sh), in a scratch checkout of its own:
#   - each patch is a mail from the zero commit without a signature, and ends with its four trailers
#   - all of it applies with plain `git am`, and formatting the commits again gives the stored bytes
#   - the files that travel are the library's
#   - upstream's hack/verify-boilerplate.sh passes, of the files that the series changes, and hack/verify-featuregates.sh
#     (--no-build leaves the latter out, which compiles)
#   - hack/apply.sh makes the same tree, and hack/reverse.sh restores everything
#   - after each patch ./cmd/kubelet builds, and the packages which that patch touches pass go vet, tests included
#     (--no-build leaves this out)

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"

BUILD=1
while (($# > 0)); do
  case $1 in
    --no-build) BUILD='' ;;
    -h | --help) sed -n '4,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "verify.sh: unknown argument \"$1\"" ;;
  esac
  shift
done

need_git
[[ -z $BUILD ]] || need go
resolve_tree
[[ -z $BUILD ]] || check_go
SKIP='' pick_series "$VERSION"
unset SKIP
say "Verifying series $SERIES_NAME on kubernetes $VERSION from $TREE"
FAILED=0
bad() {
  FAILED=1
  local line
  echo "FAIL: $1" >&2
  shift
  for line in "$@"; do printf '%s\n' "$line" | sed 's/^/      /' >&2; done
}
ok() { note "ok: $*"; }

# ---- the patch files ------------------------------------------------------------------------------------------------

for p in "${DROPPED[@]}"; do
  if grep -qE "^[[:space:]]*#.*$p" "$SERIES_DIR/series"; then
    note "$p is commented out in series, and not looked at"
  else
    bad "$SERIES_DIR/$p is not in $SERIES_DIR/series"
  fi
done
((${#ACTIVE[@]} > 0)) || bad "$SERIES_DIR/series names no patch"
check_dependencies
last=0
for p in "${ACTIVE[@]}"; do
  f=$SERIES_DIR/$p
  n=$(patch_number "$p")
  ((n > last)) || bad "$p stands after patch $last in series"
  last=$n
  head -n1 "$f" | grep -q '^From 0000000000000000000000000000000000000000 ' || bad "$p: the first line must be from the zero commit (format-patch --zero-commit)"
  if grep -qxF -- '-- ' "$f"; then bad "$p has a mail signature (format-patch --no-signature)"; fi
  # The trailers are the last paragraph of the message: only then does git take them for trailers.
  for key in Upstream-Issue Differs-From-Upstream Depends-On Drop-When; do
    [[ -n $(trailer "$f" "$key") ]] || bad "$p has no trailer \"$key: ...\" in the last paragraph of its message"
  done
done
((FAILED)) || ok "${#ACTIVE[@]} patch files are well-formed"

# ---- a scratch checkout ---------------------------------------------------------------------------------------------

scratch_dir WORK
SRC=$WORK/kubernetes
export GIT_CEILING_DIRECTORIES=$WORK
if [[ $TREE_KIND == git ]]; then
  commit=$(g rev-parse HEAD)
  for b in $(g for-each-ref --format='%(refname:short)' "refs/heads/$BRANCH_PREFIX*"); do
    [[ $b != "$(current_branch)" ]] || commit=$(state "$b" base || echo "$commit")
  done
  say "Checking out ${commit:0:12} in a scratch directory"
  scratch_repo "$SRC" "$commit"
  git -C "$SRC" checkout -q -b scratch
else
  say "Copying $TREE to a scratch directory"
  mkdir "$SRC"
  (cd "$TREE" && for f in ./* ./.[!.]*; do [[ $f == ./_output || ! -e $f ]] || cp -R "$f" "$SRC/"; done)
  git init -q --template= -b scratch "$SRC"
  neutral_attributes "$SRC/.git"
  git -C "$SRC" add -f -A .
  GIT_AUTHOR_NAME=$IDENT_NAME GIT_AUTHOR_EMAIL=$IDENT_EMAIL GIT_AUTHOR_DATE='@946684800 +0000' \
    GIT_COMMITTER_DATE='@946684800 +0000' git -C "$SRC" commit -q -m "kubernetes $VERSION"
fi
git -C "$SRC" tag "$VERSION"
base=$(git -C "$SRC" rev-parse HEAD)
# everything about the checkout that applying and reversing must leave alone
snapshot() {
  (
    cd "$SRC"
    git symbolic-ref HEAD
    git rev-parse HEAD 'HEAD^{tree}'
    git write-tree
    git status --porcelain --ignored
    git for-each-ref
    git config --local --list
    git stash list
  )
}
git -C "$SRC" status --porcelain >/dev/null
snapshot >"$WORK/before"

# ---- applying and formatting again ----------------------------------------------------------------------------------

say "Applying with plain git am"
commits=()
for p in "${ACTIVE[@]}"; do
  if ! git -C "$SRC" am -q --committer-date-is-author-date "$SERIES_DIR/$p" >"$WORK/am.log" 2>&1; then
    bad "$p does not apply with plain git am" "$(explain_am "$WORK/am.log")" "$(cat "$WORK/am.log")"
    exit 1
  fi
  commits+=("$(git -C "$SRC" rev-parse HEAD)")
done
ok "${#ACTIVE[@]} patches apply"

if [[ $VERSION != "$BASE_TAG" ]]; then
  note "skipped: the stored bytes can only be had again on $BASE_TAG"
elif ((${#DROPPED[@]} > 0)); then
  note "skipped: the stored bytes cannot be had again while patches are left out"
elif ((${#commits[@]} > 0)); then
  mkdir "$WORK/formatted"
  write_patches "$SRC" "$base" HEAD "$WORK/formatted"
  same=1
  for p in "${ACTIVE[@]}"; do
    if [[ ! -f $WORK/formatted/$p ]]; then
      bad "$p would be named differently by format-patch: run \"make refresh\""
      same=
    elif ! cmp -s "$SERIES_DIR/$p" "$WORK/formatted/$p"; then
      bad "$p is not what formatting its commit gives: run \"make refresh\"" \
        "$(diff -u --label stored --label formatted "$SERIES_DIR/$p" "$WORK/formatted/$p" | head -n 40)"
      same=
    fi
  done
  [[ -z $same ]] || ok "formatting the commits again gives the stored bytes"
fi

if [[ ${#DROPPED[@]} -gt 0 ]]; then
  note "skipped: the travelling files, while patches are left out"
elif "$KB_HACK/travel.sh" check "$SRC" >"$WORK/log" 2>"$WORK/err"; then
  ok "$(sed 's/^==> //' "$WORK/log")"
else
  bad "files that travel differ from the library's" "$(cat "$WORK/err")"
fi

# ---- upstream's own checks ------------------------------------------------------------------------------------------

# cannot SCRIPT: why one of upstream's scripts cannot be run here; nothing if it can.
cannot() {
  if [[ ! -f $SRC/$1 ]]; then
    echo "this tree has none"
  elif [[ $1 == *boilerplate* ]] && ! command -v python3 >/dev/null 2>&1; then
    echo "it needs python3 on PATH (on Debian or Ubuntu: apt-get install python3)"
  elif [[ ${#DROPPED[@]} -gt 0 && $1 == *featuregates* ]]; then
    echo "the generated lists are of the whole series, and patches are left out"
  fi
}

script=hack/verify-boilerplate.sh
if why=$(cannot "$script") && [[ -n $why ]]; then
  note "skipped: upstream's $script: $why"
else
  # Named one by one: the script skips all of a tree that is somewhere below a directory "_output".
  mapfile -t files < <(git -C "$SRC" diff --name-only --diff-filter=d --no-renames "$base" HEAD)
  # A tree from the module proxy has nothing that is executable.
  chmod +x "$SRC/$script" "$SRC/hack/boilerplate/boilerplate.py"
  if (cd "$SRC" && "$script" "${files[@]}") >"$WORK/log" 2>&1; then
    ok "upstream's $script passes"
  else
    bad "upstream's $script fails" "$(cat "$WORK/log")"
  fi
  git -C "$SRC" checkout -q -- hack
fi
[[ -n $BUILD ]] || note "skipped: upstream's hack/verify-featuregates.sh, which compiles"

# ---- apply.sh and reverse.sh ----------------------------------------------------------------------------------------

say "Applying and reversing with the scripts"
final=$(git -C "$SRC" rev-parse 'HEAD^{tree}')
git -C "$SRC" reset -q --hard "$base"
script() { KUBE_ROOT=$SRC KUBE_VERSION=$VERSION KB_SERIES=$SERIES_NAME "$KB_HACK/$1" >"$WORK/log" 2>&1; }
if ! script apply.sh; then
  bad "hack/apply.sh fails" "$(cat "$WORK/log")"
else
  [[ $(git -C "$SRC" rev-parse 'HEAD^{tree}') == "$final" ]] || bad "hack/apply.sh makes another tree than git am"
  if ! script reverse.sh; then
    bad "hack/reverse.sh fails" "$(cat "$WORK/log")"
  else
    snapshot >"$WORK/after"
    if cmp -s "$WORK/before" "$WORK/after"; then
      ok "hack/reverse.sh restores the tree, the branch, the index and the configuration"
    else
      bad "hack/reverse.sh leaves something changed" "$(diff "$WORK/before" "$WORK/after")"
    fi
  fi
fi

# ---- building, patch by patch ---------------------------------------------------------------------------------------

if [[ -n $BUILD ]]; then
  one_at_a_time
  go_env_for_tree "$SRC"
  in_src() { cd "$SRC" && "$@"; }
  i=0
  for p in "${ACTIVE[@]}"; do
    git -C "$SRC" checkout -q -f --detach "${commits[i]}"
    i=$((i + 1))
    say "Building after $p ($i of ${#ACTIVE[@]})"
    if run_long "kubelet" "$WORK/log" in_src go build -v -ldflags '-s -w' -o "$WORK/kubelet" ./cmd/kubelet; then
      ok "./cmd/kubelet builds ($LONG_SECONDS s)"
    else
      bad "./cmd/kubelet does not build after $p:"
      show_errors "$WORK/log"
      exit 1
    fi
    mapfile -t packages < <(touched_packages "$SRC" "$p")
    ((${#packages[@]} > 0)) || continue
    if run_long "go vet" "$WORK/log" in_src go vet "${packages[@]}"; then
      ok "go vet: ${packages[*]} ($LONG_SECONDS s)"
    else
      bad "go vet fails after $p:"
      show_errors "$WORK/log"
      exit 1
    fi
  done
fi

if [[ -n $BUILD ]]; then
  script=hack/verify-featuregates.sh
  # With the Go that is here and its caches. Upstream's way would be a Go and caches of the tree's own, from the network.
  upstream_env() {
    cd "$SRC" && env -u GOWORK -u GO111MODULE FORCE_HOST_GO=y GOCACHE="$(go env GOCACHE)" GOMODCACHE="$(go env GOMODCACHE)" "$@"
  }
  if why=$(cannot "$script") && [[ -n $why ]]; then
    note "skipped: upstream's $script: $why"
  elif run_long "feature gates" "$WORK/log" upstream_env bash "$script"; then
    ok "upstream's $script passes ($LONG_SECONDS s)"
  else
    bad "upstream's $script fails:" "$(tail -n 20 "$WORK/log")"
  fi
fi

((FAILED == 0)) || { echo "error: series $SERIES_NAME is not in order; see the lines with FAIL above" >&2; exit 1; }
say "Series $SERIES_NAME is in order on kubernetes $VERSION"
