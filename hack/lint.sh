#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh: gofmt, go vet and staticcheck on the library; shellcheck on the scripts where it is installed.

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
say "go vet"
go vet ./... || rc=1
say "staticcheck"
go tool -modfile=hack/tools/go.mod staticcheck ./... || rc=1
if command -v shellcheck >/dev/null 2>&1; then
  say "shellcheck"
  shellcheck -x hack/*.sh .ci/run || rc=1
else
  note "shellcheck is not installed: the scripts are not checked"
fi
exit "$rc"
