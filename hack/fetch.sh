#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fetch.sh [VERSION]: the source tree of a kubernetes release, in _output/VERSION/kubernetes.
#
# The tree is put together from the Go module proxy (whatever `go env GOPROXY` says): k8s.io/kubernetes and every
# staging module, laid out as in git, as a git repository with one commit tagged VERSION. The commit is the same on
# every machine. A tree that is there already is left alone. An interrupted run leaves nothing behind.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"

[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '4,8s/^# \{0,1\}//p' "$0"; exit 0; }
(($# <= 1)) || die "usage: hack/fetch.sh [VERSION]"
if [[ -n $KUBE_ROOT && $# == 0 ]]; then
  say "KUBE_ROOT is set ($KUBE_ROOT): nothing to fetch"
  exit 0
fi
VERSION=${1:-$KUBE_VERSION}
[[ -n $VERSION ]] || VERSION=$(default_version) || exit 1
VERSION=$(normal_version "$VERSION") || exit 1
STAGING_VERSION=v0.${VERSION#v1.}
DEST=$OUTPUT_DIR/$VERSION/kubernetes

if [[ -e $DEST ]]; then
  if [[ -d $DEST/.git && -f $DEST/go.mod ]]; then
    say "kubernetes $VERSION is already in $DEST"
    exit 0
  fi
  die "$DEST exists, but hack/fetch.sh did not make it (no .git or no go.mod)" "Remove it and run this again."
fi

need go
need_git
# Only the proxy's answers count here, not a workspace, a vendor directory or flags meant for other modules. Not empty,
# because what `go env -w` wrote counts for empty variables.
export GOFLAGS=-buildvcs=false GOWORK=off GO111MODULE=on
mkdir -p "$OUTPUT_DIR" || die "cannot create $OUTPUT_DIR"

# One fetch at a time.
if command -v flock >/dev/null 2>&1; then
  exec 8>>"$OUTPUT_DIR/.fetch.lock"
  flock -n 8 || { say "Waiting for another fetch to end" && flock 8; }
  if [[ -d $DEST/.git ]]; then
    say "kubernetes $VERSION is already in $DEST"
    exit 0
  fi
fi

MODCACHE=$(go env GOMODCACHE)
scratch_dir WORK
NEW=$WORK/kubernetes

in_dir() { cd "$1" && shift && "$@"; }
# A module of its own, so that `go mod download` does not look at, or write to, the one around it.
mkdir "$WORK/cwd"
printf 'module scratch\n' >"$WORK/cwd/go.mod"

# download MODULE@VERSION...: fills the module cache. Sets FAILED (modules) and REASON (module -> proxy's words).
declare -A REASON=()
download() {
  local out line module=
  out=$WORK/download.log
  FAILED=()
  run_long downloading "$out" in_dir "$WORK/cwd" go mod download -json "$@" || true
  grep -q '"Path"' "$out" || die "go mod download failed:" "$(tail -n 20 "$out")"
  while IFS= read -r line; do
    case $line in
      *'"Path": "'*) module=${line#*'"Path": "'} module=${module%\"*} ;;
      *'"Error": "'*)
        line=${line#*'"Error": "'}
        FAILED+=("$module")
        REASON[$module]=${line%\"*}
        ;;
    esac
  done <"$out"
}

# The checksum database does not know every staging module, so what it says it does not have is asked of the proxy
# alone. A checksum that differs is never passed over, nor is a database that does not answer.
download_all() {
  local m again=()
  download "$@"
  for m in "${FAILED[@]}"; do
    case ${REASON[$m]} in
      *'checksum mismatch'* | *'SECURITY ERROR'*) die "$m: the download differs from what the checksum database expects" "${REASON[$m]}" ;;
      *verifying*': 404 '* | *verifying*': 410 '*) again+=("$m") ;;
      *verifying*) die "$m cannot be checked against the checksum database:" "$(printf '%b' "${REASON[$m]}")" ;;
    esac
  done
  ((${#again[@]} == 0)) && return
  note "NOT checked against the checksum database, which does not have them: ${again[*]}"
  local versioned=() keep=() x
  for m in "${again[@]}"; do
    for x in "$@"; do [[ ${x%@*} == "$m" ]] && versioned+=("$x"); done
  done
  for m in "${FAILED[@]}"; do contains "$m" "${again[@]}" || keep+=("$m"); done
  GONOSUMDB="k8s.io/*${GONOSUMDB:+,$GONOSUMDB}" download "${versioned[@]}"
  FAILED+=("${keep[@]}")
}

# zip_only MODULE VERSION DIR: some proxies refuse a version's .info and .mod but still have its .zip.
PROXY=$(go env GOPROXY)
PROXY=${PROXY%%[,|]*}
zip_only() {
  case $PROXY in http://* | https://*) ;; *) return 1 ;; esac
  (cd "$KB_HACK/modzip" && GO111MODULE=off go run main.go "$PROXY" "$1" "$2" "$3") 2>"$WORK/zip.err"
}

# place MODULE VERSION DIR: a module from the cache, writable, at DIR.
place() {
  mkdir -p "$3"
  cp -R "$MODCACHE/$1@$2/." "$3"
  chmod -R u+w "$3"
}

say "Fetching kubernetes $VERSION from the Go module proxy"
download_all "k8s.io/kubernetes@$VERSION"
if ((${#FAILED[@]} > 0)); then
  if ! zip_only k8s.io/kubernetes "$VERSION" "$NEW"; then
    die "kubernetes $VERSION cannot be had: the Go module proxy has no k8s.io/kubernetes@$VERSION" \
      "$(printf '%b' "${REASON[k8s.io/kubernetes]}")" \
      "Is $VERSION a release that exists? Otherwise use a git checkout of it: KUBE_ROOT=/path/to/kubernetes"
  fi
  note "k8s.io/kubernetes@$VERSION: only its zip was to be had, NOT checked against the checksum database"
else
  place k8s.io/kubernetes "$VERSION" "$NEW"
fi
# In the module this is but a stub, and it would make go build look there.
rm -rf "$NEW/vendor"

# go.work names the staging modules; releases before 1.30 name them in go.mod.
mapfile -t modules < <(
  if [[ -f $NEW/go.work ]]; then
    sed -n 's#^[[:space:]]*\(use[[:space:]]*\)\{0,1\}\./staging/src/\(k8s\.io/[a-z0-9-]*\).*$#\2#p' "$NEW/go.work"
  else
    sed -n 's#.*=> \./staging/src/\(k8s\.io/[a-z0-9-]*\)$#\1#p' "$NEW/go.mod"
  fi | sort -u
)
((${#modules[@]} > 0)) || die "k8s.io/kubernetes@$VERSION names no staging modules, neither in go.work nor in go.mod"
say "Fetching ${#modules[@]} staging modules at $STAGING_VERSION"
versioned=()
for m in "${modules[@]}"; do versioned+=("$m@$STAGING_VERSION"); done
download_all "${versioned[@]}"
absent=("${FAILED[@]}") stubs=()
for m in "${modules[@]}"; do
  dir=$NEW/staging/src/$m
  rm -rf "$dir"
  if ! contains "$m" "${absent[@]}"; then
    place "$m" "$STAGING_VERSION" "$dir"
  elif zip_only "$m" "$STAGING_VERSION" "$dir"; then
    note "$m@$STAGING_VERSION: only its zip was to be had, NOT checked against the checksum database"
  else
    # Only a plain no makes a module absent. Anything else is a fault on the way, and must not become an empty module.
    case ${REASON[$m]} in
      *' 403 '* | *' 404 '* | *' 410 '* | *'not found'* | *'no such file'* | *'not available'* | *'unknown revision'* | *disabled*) ;;
      *) die "$m@$STAGING_VERSION cannot be had:" "$(printf '%b' "${REASON[$m]}")" "$(cat "$WORK/zip.err" 2>/dev/null || true)" ;;
    esac
    # A workspace wants a go.mod from every module it names, used or not.
    rm -rf "$dir"
    mkdir -p "$dir"
    go_version=$(sed -n 's/^go //p' "$NEW/go.mod" | head -n1)
    printf 'module %s\n\ngo %s\n' "$m" "${go_version:-1.22.0}" >"$dir/go.mod"
    stubs+=("$m")
  fi
done
for m in "${stubs[@]}"; do
  case $m in
    k8s.io/sample-*) note "$m@$STAGING_VERSION does not exist; an empty module stands in for it" ;;
    *) warn "the proxy has no $m@$STAGING_VERSION; an empty module stands in for it, and what needs it will not build" ;;
  esac
done

say "Making a git repository of it, tagged $VERSION"
git init -q --template= -b base "$NEW"
neutral_attributes "$NEW/.git"
git -C "$NEW" config core.autocrlf false
git -C "$NEW" add -f -A .
export GIT_AUTHOR_NAME=$IDENT_NAME GIT_AUTHOR_EMAIL=$IDENT_EMAIL
export GIT_AUTHOR_DATE='@946684800 +0000' GIT_COMMITTER_DATE='@946684800 +0000'
git -C "$NEW" commit -q --no-verify -m "kubernetes $VERSION from the Go module proxy"
git -C "$NEW" tag "$VERSION"
git -C "$NEW" repack -q -a -d
mkdir -p "${DEST%/*}"
mv "$NEW" "$DEST"
say "kubernetes $VERSION is in $DEST"
