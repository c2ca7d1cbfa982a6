#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# vendor.sh
#
# Makes one more commit on the branch that `make apply` has checked out: the kubelet imports this library from the tree's vendor
# folder, and the copies of its packages are gone. The go command does the work, with this repository as the source of the module: its
# version is the tag of the commit that is checked out here, or else the pseudo-version. It works in a clone: if anything fails, the
# tree stays as it was.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
(($# == 0)) || show_help

module=github.com/kubelet-backoff/kubelet-backoff
need go git
load_tree --applied
[[ $TREE_STATE == clean ]] || die "$TREE has changes that are not committed: commit or stash them first"
[[ -f $TREE/vendor/modules.txt ]] ||
  die "$TREE has no vendor/modules.txt, as kubernetes' git repository has it." "After \"make reverse\", run \"go work vendor\" in the tree, and commit that."
! grep -q "^# $module " "$TREE/vendor/modules.txt" || die "$TREE/vendor/modules.txt has $module already"
commit=$(git -C "$KB_ROOT" rev-parse --verify -q HEAD) && [[ -z $(git -C "$KB_ROOT" rev-parse --show-prefix) ]] ||
  die "$KB_ROOT is not a git checkout: this vendors a commit of it"
# A folder of the library with a go.mod is another module, which stays a copy.
folders=() copies=() imports=()
while read -r _ from to _; do
  [[ -n $to && ! -f $KB_ROOT/${from%%/*}/go.mod ]] || continue
  package=k8s.io/kubernetes/$to
  folders+=("$from") imports+=(-e "s#\"${package/*staging\/src\//}\"#\"$module/$from\"#")
  for file in "$KB_ROOT/$from"/*.go; do copies+=("$to/${file##*/}"); done
done < <(grep -v '^#' "$KB_HACK/mirror.txt")
dirty=$(git -C "$KB_ROOT" -c core.excludesFile=/dev/null status --porcelain --untracked-files=normal -- go.mod LICENSE "${folders[@]}")
[[ -z $dirty ]] || die "$KB_ROOT has changes that are not committed, and this vendors a commit:" "$dirty"

# Git converts no file of the library, runs no hook of the user, and takes the module from here. The clone has the tree's own attributes.
export GIT_CONFIG_COUNT=5 GIT_CONFIG_KEY_0="url.file://$KB_ROOT.insteadOf" GIT_CONFIG_VALUE_0=https://$module
export GIT_CONFIG_KEY_1=core.attributesFile GIT_CONFIG_VALUE_1=/dev/null GIT_CONFIG_KEY_2=core.autocrlf GIT_CONFIG_VALUE_2=false
export GIT_CONFIG_KEY_3=core.hooksPath GIT_CONFIG_VALUE_3=/dev/null GIT_CONFIG_KEY_4=commit.gpgSign GIT_CONFIG_VALUE_4=false
say "Cloning $TREE"
scratch_dir WORK
git clone -q --shared --no-checkout "$TREE" "$WORK/tree"
attributes=$(git -C "$TREE" rev-parse --path-format=absolute --git-path info/attributes)
[[ ! -f $attributes ]] || cp "$attributes" "$WORK/tree/.git/info/"
cd "$WORK/tree"
git checkout -q --detach "$COMMIT"

# What the release has is no copy.
for file in "${copies[@]}"; do
  [[ ! -f $file ]] || git cat-file -e "$BASE:$file" 2>/dev/null || git rm -q -- "$file"
done
git diff -z --name-only --diff-filter=AM "$BASE" HEAD -- '*.go' >"$WORK/changed"
while IFS= read -r -d '' file; do
  [[ ! -f $file ]] || sed -i "${imports[@]}" "$file"
done <"$WORK/changed"
git diff -z --name-only --diff-filter=M | xargs -0r gofmt -w

export GOPRIVATE=$module GO111MODULE=on GOFLAGS=-buildvcs=false
# The module cache may know the commit by a version that it had before it was tagged.
version=$(cd "$WORK" && GOWORK=off GOMODCACHE=$WORK/modcache go list -m -modcacherw -f '{{.Version}}' "$module@$commit") ||
  die "the go command cannot get the library from $KB_ROOT"
say "Vendoring $module $version"
go mod edit -require="$module@$version"
GOWORK=$PWD/go.work run_long "go work vendor" "$WORK/log" go work vendor || die "go work vendor fails:" "$(tail -n 20 "$WORK/log")"
while IFS= read -r file; do
  cmp -s "$file" "$KB_ROOT/${file#"vendor/$module/"}" ||
    die "$file of $version differs from $KB_ROOT: the tag has moved since the module cache got it." "Remove cache/download/$module and $module@$version from $(go env GOMODCACHE)."
done < <(find "vendor/$module" -type f)
if [[ -d LICENSES/vendor ]]; then
  license=vendor/$module/LICENSE
  mkdir -p "LICENSES/${license%/*}"
  {
    printf '= %s licensed under: =\n\n' "${license%/*}"
    cat "$license"
    printf '\n= %s %s\n' "$license" "$(md5sum <"$license" | cut -d' ' -f1)"
  } >"LICENSES/$license"
  git add -f "LICENSES/$license"
fi
git add -f -A vendor
git add -u
export GIT_{AUTHOR,COMMITTER}_NAME=kubelet-backoff GIT_{AUTHOR,COMMITTER}_EMAIL=noreply@kubelet-backoff.invalid GIT_{AUTHOR,COMMITTER}_DATE="$COMMIT_TIME +0000"
git commit -q -m "vendor: $module" -m "The kubelet imports the module, and not copies of its packages."
git -C "$TREE" fetch -q "$WORK/tree" HEAD
git -C "$TREE" merge -q --ff-only FETCH_HEAD
say "$BRANCH of $TREE has one more commit, which imports $module $version"
