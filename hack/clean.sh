#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# clean.sh: removes _output. A source tree in it that holds somebody's work (uncommitted changes, or commits that no
# patch file holds) is kept, and named.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
need_git
[[ -d $OUTPUT_DIR ]] || exit 0
kept=0
for dir in "$OUTPUT_DIR"/* "$OUTPUT_DIR"/.[!.]*; do
  [[ -e $dir ]] || continue
  TREE=$dir/kubernetes work=''
  if [[ -d $TREE/.git ]]; then
    [[ -z $(dirty_files) ]] || work="uncommitted changes"
    for b in $(g for-each-ref --format='%(refname:short)' refs/heads); do
      [[ $b != base && $(g rev-parse "$b") != "$(state "$b" tip || true)" ]] && work="commits on $b that no patch file holds"
    done
  fi
  if [[ -n $work ]]; then
    warn "kept, because it has $work: $TREE"
    kept=1
    rm -rf "$dir/stock" "$dir/kubelet"
  else
    rm -rf "$dir"
  fi
done
((kept)) || rm -rf "$OUTPUT_DIR"
