#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# reverse.sh [--force]
#
# Undoes hack/apply.sh: checks out again what was checked out before, and deletes the series branch. Nothing else is
# removed. Refuses when that would lose work: uncommitted changes, or commits that no patch file holds.
#
#   --force   lose them

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"

FORCE=
while (($# > 0)); do
  case $1 in
    --force) FORCE=1 ;;
    -h | --help) sed -n '4,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "reverse.sh: unknown argument \"$1\"" ;;
  esac
  shift
done

need_git
locate_tree
if [[ $TREE_KIND == missing ]]; then
  say "Nothing to take back: there is no tree of kubernetes $VERSION"
  exit 0
fi
if [[ $TREE_KIND == plain ]] || ! find_applied_branch; then
  say "Nothing to take back: no series is applied to $TREE"
  exit 0
fi

head=$(g rev-parse "refs/heads/$BRANCH")
tip=$(state "$BRANCH" tip || true)
origin=$(state "$BRANCH" origin || echo "$BASE")
made=$(g config --local --get kubelet-backoff.made-repository || true)
current=$(current_branch)
say "Taking $BRANCH back from $TREE"

op=$(in_progress)
if [[ -n $op ]]; then
  # An apply that was killed leaves a git am behind; anything else is not ours to abort.
  if [[ $op == "git am" && $current == "$BRANCH" && -z $tip ]]; then
    note "aborting the git am that an interrupted apply left behind"
    g am --abort >/dev/null 2>&1 || rm -rf "$(g rev-parse --absolute-git-dir)/rebase-apply"
    head=$(g rev-parse "refs/heads/$BRANCH")
  else
    die "$TREE is in the middle of a $op: finish or abort it first ($op --continue, or $op --abort)"
  fi
fi

if [[ $current == "$BRANCH" && -z $FORCE && -n $(dirty_files) ]]; then
  require_clean "taking the series back (--force loses them)"
fi
if [[ -n $tip && $head != "$tip" ]]; then
  extra=$(g log --reverse --format='%h %s' "$head" "^$tip" "^$BASE")
elif [[ -z $tip ]]; then
  # Half applied: what the script committed itself may go.
  extra=$(g log --reverse --format='%ce %h %s' "$BASE..$head" | sed -n "/^$IDENT_EMAIL /!s/^[^ ]* //p")
else
  extra=
fi
if [[ -n $extra ]]; then
  [[ -n $FORCE ]] || die "$BRANCH has commits that no patch file holds:" "$extra" \
    "\"make refresh\" writes them into the patches; hack/reverse.sh --force drops them."
  note "dropping: $(wc -l <<<"$extra") commits"
fi

if [[ $current == "$BRANCH" ]]; then
  [[ -z $FORCE ]] || g reset -q --hard
  if [[ $origin == refs/heads/* ]] && ! g show-ref -q --verify "$origin"; then
    warn "${origin#refs/heads/}, checked out before the series, no longer exists; going back to commit $BASE"
    origin=$BASE
  fi
  if [[ $origin == refs/heads/* ]]; then
    g checkout -q "${origin#refs/heads/}"
  else
    g checkout -q --detach "$origin"
  fi
else
  note "$BRANCH is not checked out; what is stays"
fi
g branch -q -D "$BRANCH"

if [[ $made == true ]]; then
  others=$(g for-each-ref --format='%(refname)' refs/heads refs/stash | grep -vx refs/heads/base || true)
  if [[ -n $others || $(g rev-parse HEAD) != "$BASE" || -n $(dirty_files) ]]; then
    warn "$TREE/.git was made by hack/apply.sh, but holds more than that by now; it is kept"
  else
    rm -rf "$TREE/.git"
    say "Done: $TREE is a plain source tree again"
    exit 0
  fi
fi
say "Done: $TREE has $(g symbolic-ref -q --short HEAD || g rev-parse --short=12 HEAD) checked out"
