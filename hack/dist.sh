#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# dist.sh [--kubelet]
#
# Writes to _output/dist an archive of the commit that is checked out, with the mails of every series, and SHA256SUMS. The same commit
# gives the same bytes everywhere. With --kubelet it writes the patched kubelet of KUBE_VERSION instead, for this machine's
# architecture, and a CycloneDX list of the modules in it. The same Go version gives the same bytes.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help
[[ $# == 0 || $* == --kubelet ]] || die "dist.sh: unknown argument \"$*\""
need git gzip sha256sum
cd "$KB_ROOT"
[[ -z $(git status --porcelain) ]] || die "$KB_ROOT has changes that are not committed, and dist archives a commit:" "$(git status --porcelain)"
# A release has whole series, on the releases that BASE names.
unset KUBE_ROOT SKIP
mkdir -p "$OUTPUT_DIR/dist"
if [[ $# == 1 ]]; then
  unset SERIES
  patchset apply || exit 1
  load_tree --applied
  "$KB_HACK/build.sh" kubelet || exit 1
  name=kubelet-$VERSION+kubelet-backoff-$(go env GOOS)-$(go env GOARCH)
  cp "$OUTPUT_DIR/$VERSION/kubelet" "$OUTPUT_DIR/dist/$name"
  cyclonedx=$(GOWORK=off go tool -modfile="$KB_HACK/tools/go.mod" -n cyclonedx-gomod) || exit 1
  "$cyclonedx" bin -json -noserial -notimestamp -version "$VERSION+kubelet-backoff" -output "$OUTPUT_DIR/dist/$name.cdx.json" "$OUTPUT_DIR/dist/$name" || exit 1
  say "$OUTPUT_DIR/dist/$name"
  exit 0
fi
name=kubelet-backoff-$(git describe --tags --exact-match --match 'v*' 2>/dev/null || git rev-parse --short=12 HEAD)
export SERIES=all
args=()
for release in $(releases); do
  tree=$OUTPUT_DIR/$release/kubernetes
  [[ ! -d $tree ]] || KUBE_VERSION=$release patchset reverse >/dev/null
  KUBE_VERSION=$release patchset export
  [[ $(git -C "$tree" rev-parse HEAD) == $(git -C "$tree" rev-parse "$release^{commit}") ]] || die "$tree has another commit than $release checked out"
  args+=("--prefix=$name/series/${release%.*}/")
  for mail in "$OUTPUT_DIR/series/${release%.*}"/*.patch; do args+=("--add-file=$mail"); done
done
cd "$OUTPUT_DIR/dist"
umask 022
# Git takes the modes of the archive from its own files, and of the added ones from the disk.
chmod 644 "$OUTPUT_DIR"/series/*/*.patch
git -C "$KB_ROOT" -c tar.umask=0022 -c core.autocrlf=false -c core.attributesFile=/dev/null archive --format=tar "${args[@]}" "--prefix=$name/" HEAD | gzip -9 -n >"$name.tar.gz"
sha256sum "$name.tar.gz" >SHA256SUMS
say "$OUTPUT_DIR/dist/$name.tar.gz"
