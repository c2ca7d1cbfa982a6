#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# clean.sh: removes _output. A source tree in it that holds somebody's work (changes and new files that are not committed,
# stashes, or commits that no patch file holds) is kept, and named.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
need_git
# Never what KB_OUTPUT_DIR names: that directory may hold other things.
OUTPUT_DIR=$KB_ROOT/_output
[[ -d $OUTPUT_DIR ]] || exit 0

# work_in_tree VERSION: what somebody has done in TREE, in words; nothing when there is nothing. All that may go is what
# the release's tag and complete series hold.
work_in_tree() {
  local changes commits ours
  ours=$(g config --local --get-regexp '^branch\..*\.kubelet-backoff-tip$' | cut -d' ' -f2 || true)
  # shellcheck disable=SC2086 # a list of commits; a stash is in --all, a detached HEAD is not
  if ! changes=$(g status --porcelain) || ! commits=$(g rev-list -n1 --all HEAD --not "refs/tags/$1" $ours); then
    echo "contents that git cannot tell"
  elif [[ -n $changes ]]; then
    echo "changes or new files that are not committed"
  elif [[ -n $commits ]]; then
    echo "stashes or commits that no patch file holds"
  fi
}

kept=0
for dir in "$OUTPUT_DIR"/* "$OUTPUT_DIR"/.[!.]*; do
  [[ -e $dir ]] || continue
  TREE=$dir/kubernetes work=''
  [[ ! -d $TREE/.git ]] || work=$(work_in_tree "${dir##*/}")
  if [[ -n $work ]]; then
    warn "kept, because it has $work: $TREE"
    kept=1
    rm -rf "$dir/stock" "$dir/kubelet"
  else
    rm -rf "$dir"
  fi
done
((kept)) || rm -rf "$OUTPUT_DIR"
