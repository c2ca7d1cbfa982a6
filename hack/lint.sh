#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh: gofmt, go vet and staticcheck on every module here; shellcheck on the scripts where it is installed.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
need go gofmt
cd "$KB_ROOT"
rc=0
say "gofmt"
unformatted=$(find . -name _output -prune -o -name testdata -prune -o -name '*.go' -exec gofmt -l {} +)
if [[ -n $unformatted ]]; then
  printf 'error: not formatted as gofmt does it:\n%s\nerror: run gofmt -w on them\n' "$unformatted" >&2
  rc=1
fi
# All modules use the same staticcheck, at the version in hack/tools. Modules without packages pin tools.
staticcheck=$(GOWORK=off go tool -modfile=hack/tools/go.mod -n staticcheck)
while IFS= read -r mod; do
  cd "$KB_ROOT/$mod"
  unset GOWORK
  grep -qxE "\s+$mod" "$KB_ROOT/go.work" || export GOWORK=off
  packages=$(go list ./...) || { rc=1; continue; }
  [[ -n $packages ]] || continue
  say "go vet and staticcheck in $mod"
  go vet ./... || rc=1
  "$staticcheck" ./... || rc=1
done < <(find . -name _output -prune -o -path '*/vendor/*' -prune -o -name go.mod -printf '%h\n' | sort)
cd "$KB_ROOT"
# The workspace has the newest versions of the modules that the library requires.
say "go vet of the library with the versions in go.mod"
GOWORK=off go vet ./... || rc=1
if command -v shellcheck >/dev/null 2>&1; then
  say "shellcheck"
  # Below a warning it guesses, for example which of two names is misspelled.
  shellcheck -x -S warning hack/*.sh .ci/run || rc=1
else
  note "shellcheck is not installed: the scripts are not checked"
fi
exit "$rc"
