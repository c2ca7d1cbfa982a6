#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# refresh.sh [--base COMMIT] [--library-wins]
#
# Writes the series branch into its patch files, and the library's files into the branch. Commit by commit, the files
# that travel with that patch (hack/travel.txt) are replaced by the library's, messages, authors and dates staying as
# they are; then every commit becomes a patch, the same bytes on every machine, and `series` is written anew. BASE is
# not touched. Running it twice changes nothing.
#
#   --base COMMIT    the branch was rebased: this is where it starts now
#   --library-wins   a travelling file that was edited on the branch is overwritten, instead of refused

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"

NEW_BASE='' LIBRARY_WINS=''
while (($# > 0)); do
  case $1 in
    --base) NEW_BASE=${2:?--base needs a commit}; shift ;;
    --library-wins) LIBRARY_WINS=1 ;;
    -h | --help) sed -n '4,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "refresh.sh: unknown argument \"$1\"" ;;
  esac
  shift
done

need_git
locate_tree
[[ $TREE_KIND != missing ]] || die "there is no tree of kubernetes $VERSION yet: run \"make apply\" first"
require_on_branch
SKIP='' load_series "$PATCHES_DIR/$SERIES_NAME"
((${#DROPPED[@]} == 0)) || die "$SERIES_DIR/series leaves out patches, and refresh would forget them:" "${DROPPED[@]}" \
  "Put them back into series (or delete their files), make apply, and refresh then."
applied=$(g rev-list --count "$BASE..$(state "$BRANCH" tip)" 2>/dev/null || echo "${#ACTIVE[@]}")
[[ -n $NEW_BASE || $applied == "${#ACTIVE[@]}" || $(state "$BRANCH" digest) == "$(series_digest)" ]] ||
  die "$BRANCH was made from $applied patches, but $SERIES_DIR has ${#ACTIVE[@]}: applied with SKIP, or the series has changed since" \
    "Run \"make reverse\" and \"make apply\", and refresh then."
op=$(in_progress)
[[ -z $op ]] || die "$TREE is in the middle of a $op: finish or abort it first ($op --continue, or $op --abort)"
require_clean "refreshing the patches"
scratch_dir WORK

HEAD=$(g rev-parse "refs/heads/$BRANCH")
TIP=$(state "$BRANCH" tip)
if [[ -n $NEW_BASE ]]; then
  BASE=$(g rev-parse -q --verify "$NEW_BASE^{commit}") || die "--base $NEW_BASE: no such commit in $TREE"
fi
hint="If the branch was rebased, say where it starts now: hack/refresh.sh --base COMMIT"
g merge-base --is-ancestor "$BASE" "$HEAD" || die "$BRANCH no longer starts at $BASE" "$hint"
mapfile -t commits < <(g rev-list --reverse --topo-order "$BASE..$HEAD")
((${#commits[@]} <= 99)) || die "$BRANCH has ${#commits[@]} commits since ${BASE:0:12}" "$hint"
[[ -z $(g rev-list --merges "$BASE..$HEAD") ]] || die "$BRANCH has merge commits, which cannot become patches" "$hint"
say "Refreshing $SERIES_DIR from $BRANCH in $TREE (${#commits[@]} commits)"

# ---- the library's files into the commits ---------------------------------------------------------------------------

TRAVELS=$("$KB_HACK/travel.sh" list) || exit 1
declare -A BLOB=()
while read -r n lib path _; do
  [[ -n $n ]] || continue
  if ((n > ${#commits[@]})); then
    warn "hack/travel.txt: $lib goes with patch $n, but there are ${#commits[@]} commits; not carried"
    continue
  fi
  "$KB_HACK/travel.sh" render "$lib" >"$WORK/rendered" || exit 1
  BLOB[$path]=$(g hash-object -w --no-filters "$WORK/rendered")
  now=$(g rev-parse -q --verify "$HEAD:$path" || true)
  was=$(g rev-parse -q --verify "$TIP:$path" || true)
  if [[ -n $now && $now != "${BLOB[$path]}" && $now != "$was" && -z $LIBRARY_WINS ]]; then
    g cat-file blob "$now" >"$WORK/branch"
    die "$path was edited on $BRANCH, but it is $lib that travels there" \
      "$(diff -u --label "$lib (as it travels)" --label "$path (branch)" "$WORK/rendered" "$WORK/branch" | head -n 40)" \
      "Make the change in $lib, or drop it with --library-wins."
  fi
done <<<"$TRAVELS"

new=$BASE i=0
for c in "${commits[@]}"; do
  i=$((i + 1))
  export GIT_INDEX_FILE=$WORK/index
  g read-tree "$c"
  while read -r n lib path _; do
    [[ -n $n && -n ${BLOB[$path]:-} ]] || continue
    if ((n <= i)); then
      g update-index --add --cacheinfo "100644,${BLOB[$path]},$path"
    elif [[ $(g rev-parse -q --verify "$c:$path") != "$(g rev-parse -q --verify "$BASE:$path")" ]]; then
      die "commit $i ($(g log -1 --format='%h %s' "$c")) changes $path, which hack/travel.txt gives to patch $n"
    fi
  done <<<"$TRAVELS"
  tree=$(g write-tree)
  unset GIT_INDEX_FILE
  [[ $tree != "$(g rev-parse "$new^{tree}")" ]] || die "commit $i ($(g log -1 --format='%h %s' "$c")) changes nothing"
  GIT_AUTHOR_NAME=$(g log -1 --format=%an "$c") GIT_AUTHOR_EMAIL=$(g log -1 --format=%ae "$c")
  GIT_AUTHOR_DATE=$(g log -1 --format=%ad --date=raw "$c")
  export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
  new=$(g cat-file commit "$c" | sed '1,/^$/d' | git stripspace | g commit-tree "$tree" -p "$new")
  unset GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_DATE
done

# ---- the commits into patch files -----------------------------------------------------------------------------------

# In a repository of our own, so that no setting of the user's repository has a say.
NO_CHECKOUT=1 scratch_repo "$WORK/repo" "$new"
mkdir "$WORK/new"
((${#commits[@]} == 0)) || write_patches "$WORK/repo" "$BASE" "$new" "$WORK/new"
{
  if [[ -s $SERIES_DIR/series ]]; then
    awk '/^[0-9]/ {exit} {print}' "$SERIES_DIR/series"
  else
    echo "# In this order. Comment a line out to leave that patch out."
  fi
  (cd "$WORK/new" && for f in *.patch; do [[ -f $f ]] && printf '%s\n' "$f"; done) || true
} >"$WORK/series"

changes=0
for f in "$WORK/new"/*.patch; do
  [[ -f $f ]] || continue
  name=${f##*/}
  if ! cmp -s "$f" "$SERIES_DIR/$name"; then
    if [[ -f $SERIES_DIR/$name ]]; then note "$name changed"; else note "$name is new"; fi
    changes=1
  fi
done
trap '' INT TERM HUP # all or nothing from here on

# ---- the branch to the new commits ----------------------------------------------------------------------------------

# First, because git refuses this where it would overwrite a file, and then nothing has changed.
if [[ $new != "$HEAD" ]]; then
  g reset -q --keep "$new"
  note "$BRANCH is now at $(g rev-parse --short=12 "$new")"
fi

# ---- and the patch files to the new patches -------------------------------------------------------------------------

for f in "${ALL[@]}"; do
  if [[ ! -f $WORK/new/$f ]]; then
    note "$f is gone"
    rm -f "$SERIES_DIR/$f"
    changes=1
  fi
done
for f in "$WORK/new"/*.patch; do
  [[ ! -f $f ]] || cmp -s "$f" "$SERIES_DIR/${f##*/}" || cp "$f" "$SERIES_DIR/${f##*/}"
done
if ! cmp -s "$WORK/series" "$SERIES_DIR/series"; then
  cp "$WORK/series" "$SERIES_DIR/series"
  changes=1
fi

SKIP='' load_series "$PATCHES_DIR/$SERIES_NAME"
set_state "$BRANCH" base "$BASE"
set_state "$BRANCH" tip "$new"
set_state "$BRANCH" digest "$(series_digest)"
if ((changes)); then say "Refreshed: ${#ACTIVE[@]} patches in $SERIES_DIR"; else say "Nothing to refresh: ${#ACTIVE[@]} patches, all as they were"; fi
