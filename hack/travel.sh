#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# travel.sh list | render LIBPATH | check TREE
#
# The files that the patches carry into kubernetes are the library's own files. hack/travel.txt says which go where, a
# line each: the number of the patch, the path here, the path in the tree. On the way only three things change: the
# package clause (it becomes the tree directory's name, _test kept), import paths of this module (they become the
# import path of the tree directory that the imported directory travels to), and the licence: upstream's header
# (hack/header.go.txt) takes the place of the SPDX line.
#
#   list             the lines of travel.txt without its comments
#   render LIBPATH   the file as it is in the tree, on stdout
#   check TREE       every travelling file in TREE is what render makes; a diff where it is not

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
TRAVEL=$KB_HACK/travel.txt

travel_list() {
  [[ -f $TRAVEL ]] || return 0
  awk -v file="$TRAVEL" '
    { sub(/[ \t]*#.*/, "") }
    NF == 0 { next }
    NF < 3 || NF > 4 || NF == 4 && $4 !~ /^20[0-9][0-9]$/ || $1 !~ /^[0-9]+$/ || $2 !~ /\.go$/ || $3 !~ /\.go$/ {
      printf "error: %s line %d: expected \"PATCH-NUMBER LIBRARY-PATH.go TREE-PATH.go [YEAR]\"\n", file, NR > "/dev/stderr"; exit 1
    }
    seen[$2]++ { printf "error: %s line %d: %s is listed twice\n", file, NR, $2 > "/dev/stderr"; exit 1 }
    used[$3]++ { printf "error: %s line %d: %s is the target twice\n", file, NR, $3 > "/dev/stderr"; exit 1 }
    { print $1 + 0, $2, $3 (NF == 4 ? " " $4 : "") }' "$TRAVEL"
}

# render LIBPATH
render() {
  local lib=$1 list tree year
  list=$(travel_list) || exit 1
  read -r tree year < <(awk -v lib="$lib" '$2 == lib {print $3, $4}' <<<"$list") || true
  [[ -n $tree ]] || die "$lib is not in $TRAVEL"
  [[ -f $KB_ROOT/$lib ]] || die "$TRAVEL names $lib, but there is no such file in $KB_ROOT"
  awk -v module="$KB_MODULE" -v lib="$lib" -v tree="$tree" -v list="$list" -v year="$year" -v header="$KB_HACK/header.go.txt" '
    function fail(msg) { printf "error: %s line %d: %s\n", lib, FNR, msg > "/dev/stderr"; failed = 1; exit 1 }
    function dirname(p) { sub(/\/[^\/]*$/, "", p); return p }
    function licence(  line, status) {
      while ((status = (getline line <header)) > 0) {
        sub(/Copyright YEAR /, year == "" ? "Copyright " : "Copyright " year " ", line)
        print line
      }
      if (status < 0) fail("cannot read " header)
    }
    function base(p) { sub(/.*\//, "", p); return p }
    BEGIN {
      n = split(list, lines, "\n")
      for (i = 1; i <= n; i++) {
        split(lines[i], f, " ")
        from = dirname(f[2]); to = dirname(f[3])
        imp = to
        if (!sub(/^staging\/src\//, "", imp)) imp = "k8s.io/kubernetes/" to
        if (from in map && map[from] != imp) ambiguous[from] = 1
        map[from] = imp
      }
    }
    FNR == 1 && /^\/\/ SPDX-License-Identifier: Apache-2\.0$/ { spdx = 1; next }
    FNR == 2 && spdx && /^$/ { next }
    # Build constraints stay in front.
    spdx && /^\/\/go:build / { print; print ""; licence(); spdx = 0; next }
    spdx { licence(); print ""; spdx = 0 }
    !clause && /^package [A-Za-z_]/ {
      clause = 1
      suffix = ($2 ~ /_test$/) ? "_test" : ""
      sub(/^package [A-Za-z0-9_]+/, "package " base(dirname(tree)) suffix)
      print; next
    }
    # Imports come after the package clause and before the first declaration.
    clause && !over && /^(func|type|var|const)[ (]/ { over = 1 }
    clause && !over && /^import \(/ { block = 1; print; next }
    block && /^\)/ { block = 0; print; next }
    (block || (clause && !over && /^import /)) && index($0, "\"" module "/") {
      at = index($0, "\"" module "/")
      rest = substr($0, at + length(module) + 2)
      dir = substr(rest, 1, index(rest, "\"") - 1)
      if (!(dir in map)) fail("imports " dir ", which does not travel (travel.txt)")
      if (dir in ambiguous) fail("imports " dir ", which travels to more than one directory (travel.txt)")
      before = substr($0, 1, at - 1)
      name = before
      sub(/^import[ \t]+/, "", name)
      gsub(/[ \t]/, "", name)
      if (name == "" && base(dir) != base(map[dir]))
        fail("give the import a name (" base(dir) " \"...\"): it travels to a package named " base(map[dir]))
      print before "\"" map[dir] substr(rest, index(rest, "\"")); next
    }
    { print }
    END { if (!failed && !clause) { print "error: " lib ": no package clause" > "/dev/stderr"; exit 1 } }' "$KB_ROOT/$lib"
}

check() {
  local dir=$1 list n lib tree bad=0 count=0 want
  [[ -d $dir ]] || die "travel.sh check: $dir is not a directory"
  list=$(travel_list) || exit 1
  scratch_dir WORK
  want=$WORK/want.go
  while read -r n lib tree _; do
    [[ -n $n ]] || continue
    render "$lib" >"$want" || exit 1
    count=$((count + 1))
    if [[ ! -f $dir/$tree ]]; then
      echo "error: $tree is missing from $dir; patch $n should carry $lib there" >&2
      bad=1
    elif ! cmp -s "$want" "$dir/$tree"; then
      echo "error: $tree differs from $lib (patch $n); \"make refresh\" brings the library's file into the patch:" >&2
      diff -u --label "$lib (as it travels)" --label "$tree" "$want" "$dir/$tree" >&2 || true
      bad=1
    elif [[ -n $(command -v gofmt || true) && -n $(gofmt -l "$want") ]]; then
      echo "error: $lib is not gofmt-clean once it has travelled to $tree (import order?):" >&2
      gofmt -d "$want" >&2 || true
      bad=1
    fi
  done <<<"$list"
  ((bad == 0)) || exit 1
  say "$count travelling files are identical to the library's"
}

case ${1:-} in
  list) (($# == 1)) && travel_list ;;
  render) (($# == 2)) || die "usage: hack/travel.sh render LIBPATH"; render "$2" ;;
  check) (($# == 2)) || die "usage: hack/travel.sh check TREE"; check "$2" ;;
  *) die "usage: hack/travel.sh list | render LIBPATH | check TREE" ;;
esac
