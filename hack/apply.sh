#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# apply.sh [--keep]
#
# Applies the series that fits the tree to a new branch, kubelet-backoff-<series>, one commit per patch. The tree is
# KUBE_ROOT (a git checkout or a plain source tree), or else _output/KUBE_VERSION/kubernetes, fetched when missing.
# When anything fails the tree is put back as it was, bit for bit. hack/reverse.sh undoes it.
#
#   --keep      be content with a series branch that somebody has edited since
#   SKIP="4 6"  in the environment: leave these patches out, as if their lines in `series` were commented out

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"

KEEP=
while (($# > 0)); do
  case $1 in
    --keep) KEEP=1 ;;
    -h | --help) sed -n '4,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "apply.sh: unknown argument \"$1\"" ;;
  esac
  shift
done

need_git
resolve_tree
pick_series "$VERSION"
check_dependencies
DIGEST=$(series_digest)
say "Series $SERIES_NAME (${#ACTIVE[@]} patches, made on $BASE_TAG) for kubernetes $VERSION in $TREE"
((${#DROPPED[@]} == 0)) || note "left out: ${DROPPED[*]}"

scratch_dir WORK
mapfile -t CREATED < <(created_paths "${ACTIVE[@]}")

# require_ready: nothing in the tree is in the way of the series.
require_ready() {
  local op f there=()
  if [[ $TREE_KIND == git ]]; then
    op=$(in_progress)
    [[ -z $op ]] || die "$TREE is in the middle of a $op: finish or abort it first ($op --continue, or $op --abort)"
    require_clean "applying patches"
  fi
  for f in "${CREATED[@]}"; do
    [[ -e $TREE/$f || -L $TREE/$f ]] || continue
    # A file that the release has is a matter for the patch itself; git am will say so.
    if [[ $TREE_KIND == plain ]] || ! g ls-files --error-unmatch -- "$f" >/dev/null 2>&1; then there+=("$f"); fi
  done
  ((${#there[@]} == 0)) || die "the series creates files that are in $TREE already, unknown to git:" "${there[@]}" \
    "Move them away first."
}

# does_not_apply PATCH LOG
does_not_apply() {
  die "$1 does not apply to kubernetes $VERSION in $TREE:" "$(explain_am "$2")" \
    "git says: $(tail -n 3 "$2" | tr '\n' ' ')" "There are, in $PATCHES_DIR:" "$(describe_series)"
}

# rehearse COMMIT: the series applies to COMMIT. In a repository and an index of its own, without files.
rehearse() {
  local p
  NO_CHECKOUT=1 scratch_repo "$WORK/rehearsal" "$1"
  git -C "$WORK/rehearsal" read-tree HEAD
  for p in "${ACTIVE[@]}"; do
    git -C "$WORK/rehearsal" apply --cached "$SERIES_DIR/$p" >"$WORK/am.log" 2>&1 || does_not_apply "$p" "$WORK/am.log"
  done
}

# ---- what may be there already --------------------------------------------------------------------------------------

if [[ $TREE_KIND == git ]]; then
  if has_branch "$BRANCH"; then
    base=$(state "$BRANCH" base || true) tip=$(state "$BRANCH" tip || true)
    head=$(g rev-parse "refs/heads/$BRANCH")
    [[ -n $base ]] || die "$TREE has a branch $BRANCH that hack/apply.sh did not make" \
      "Rename or delete it: git -C $(printf %q "$TREE") branch -m $BRANCH other-name"
    if [[ -z $tip ]]; then
      die "$TREE has a half-applied series: $BRANCH holds $(g rev-list --count "$base..$head") of ${#ACTIVE[@]} patches" \
        "$(g log --reverse --format='%h %s' "$base..$head")" \
        "Run \"make reverse\" to go back to where it started, then \"make apply\" again."
    fi
    if [[ $head != "$tip" ]]; then
      edited="$BRANCH has been edited since the series was applied ($(g rev-list --count "$base..$head") commits on it)"
      [[ -n $KEEP && $(current_branch) == "$BRANCH" ]] || die "$edited" \
        "\"make refresh\" writes the commits into the patches, \"make reverse\" drops the branch."
      say "$edited; it is used as it is"
      exit 0
    fi
    if [[ $(state "$BRANCH" digest || true) == "$DIGEST" ]]; then
      if [[ $(current_branch) == "$BRANCH" ]]; then
        say "Already applied: $BRANCH is checked out and complete (${#ACTIVE[@]} patches)"
        [[ -z $(dirty_files) ]] || note "it has changes that are not committed: $(dirty_files | wc -l) files"
        exit 0
      fi
      [[ $(g rev-parse HEAD) == "$base" ]] || die "$BRANCH exists already, made on another commit than the one checked out" \
        "$BRANCH is on ${base:0:12}, HEAD is $(g rev-parse --short=12 HEAD)." \
        "Check it out (git checkout $BRANCH), or remove it (make reverse) to apply the series here."
      require_clean "switching to $BRANCH"
      set_state "$BRANCH" origin "$(g symbolic-ref -q HEAD || g rev-parse HEAD)"
      g checkout -q "$BRANCH"
      say "Already applied: $BRANCH was complete, and is now checked out"
      exit 0
    fi
    if [[ -n $KEEP && -n $(dirty_files) && $(current_branch) == "$BRANCH" ]]; then
      warn "$BRANCH holds older patches than $SERIES_DIR, and uncommitted changes; it is used as it is"
      exit 0
    fi
    say "The patches have changed since $BRANCH was made: taking it back first"
    # But not before it is known that the new ones apply to what is checked out then.
    require_ready
    start=HEAD
    if [[ $(current_branch) == "$BRANCH" ]]; then
      start=$(state "$BRANCH" origin || true)
      g rev-parse -q --verify "$start^{commit}" >/dev/null || start=$base
    fi
    rehearse "$(g rev-parse "$start^{commit}")"
    "$KB_HACK/reverse.sh" || exit 1
    # Taking it back may have removed the repository that was made for it.
    locate_tree
  fi
fi
require_ready

# ---- applying -------------------------------------------------------------------------------------------------------

MADE_REPOSITORY=
ORIGIN='' BASE=''

rollback() {
  [[ -n $ROLLBACK ]] || return 0
  local f dir
  if [[ -n $MADE_REPOSITORY && -z $BASE ]]; then
    rm -rf "$TREE/.git"
    return
  fi
  [[ -z $(in_progress) ]] || g am --abort >/dev/null 2>&1
  rm -rf "$(g rev-parse --absolute-git-dir)/rebase-apply"
  if [[ $(g rev-parse HEAD) != "$BASE" || -n $(dirty_files) ]]; then g reset -q --hard "$BASE"; fi
  # An interrupted git am may have written new files that git does not know yet. None of them was there before.
  for f in "${CREATED[@]}"; do
    if [[ -e $TREE/$f ]] && ! g ls-files --error-unmatch -- "$f" >/dev/null 2>&1; then
      rm -f "$TREE/$f"
      dir=${f%/*}
      (cd "$TREE" && rmdir -p --ignore-fail-on-non-empty "$dir" 2>/dev/null)
    fi
  done
  if [[ $ORIGIN == refs/heads/* ]]; then g symbolic-ref HEAD "$ORIGIN"; else g checkout -q --detach "$BASE"; fi
  g branch -q -D "$BRANCH" >/dev/null 2>&1
  [[ -z $MADE_REPOSITORY ]] || rm -rf "$TREE/.git"
  say "$TREE is as it was before" >&2
}
ROLLBACK=1
on_exit rollback

if [[ $TREE_KIND == plain ]]; then
  MADE_REPOSITORY=1
  say "Making a git repository of $TREE, with the tree as it is as its one commit (make reverse removes it again)"
  g init -q --template= -b base
  neutral_attributes "$TREE/.git"
  g config kubelet-backoff.made-repository true
  # Everything counts, ignored or not, but for what upstream's own builds leave behind.
  run_long "adding files" "$WORK/log" g add -f -A -- . ':(exclude,top)_output' ':(exclude,top).git' ||
    die "git could not take in $TREE:" "$(tail -n 5 "$WORK/log")"
  GIT_AUTHOR_NAME=$IDENT_NAME GIT_AUTHOR_EMAIL=$IDENT_EMAIL GIT_AUTHOR_DATE='@946684800 +0000' \
    GIT_COMMITTER_DATE='@946684800 +0000' g commit -q --no-verify -m "kubernetes $VERSION"
  g tag "$VERSION"
fi
ORIGIN=$(g symbolic-ref -q HEAD || g rev-parse HEAD)
BASE=$(g rev-parse HEAD)

g checkout -q -b "$BRANCH"
set_state "$BRANCH" base "$BASE"
set_state "$BRANCH" origin "$ORIGIN"
for p in "${ACTIVE[@]}"; do
  am_patch "$TREE" "$SERIES_DIR/$p" "$WORK/am.log" || does_not_apply "$p" "$WORK/am.log"
  note "$p"
done
set_state "$BRANCH" digest "$DIGEST"
set_state "$BRANCH" tip "$(g rev-parse HEAD)"
ROLLBACK=
say "Applied: $BRANCH is checked out in $TREE, ${#ACTIVE[@]} commits on $(g rev-parse --short=12 "$BASE")"
