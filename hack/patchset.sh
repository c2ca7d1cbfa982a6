#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# patchset.sh COMMAND [ARGUMENTS]
#
# Builds the program in hack/patchset if it has changed, and runs it. `hack/patchset.sh help` lists the commands. With PROGRAM=pages it
# is the program in hack/pages, which hack/pages.sh runs.

set -euo pipefail
KB_ROOT=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd -P)
export KB_ROOT
program=${PROGRAM:-patchset}
if ! command -v go >/dev/null; then
  printf 'error: missing on PATH: go\n       go: install Go 1.26 or newer and put its bin directory on PATH\n' >&2
  exit 1
fi
# For tests: a directory with the built programs.
[[ -z ${KB_PROGRAM_DIR:-} ]] || exec "$KB_PROGRAM_DIR/$program" "$@"
# `go run` would not forward signals and exit codes. The build ignores Go settings that are meant for other modules.
binary=$KB_ROOT/_output/bin/$program
(cd "$KB_ROOT/hack" && GOFLAGS=-buildvcs=false GOWORK=off GO111MODULE=on go build -o "$binary" "./$program")
exec "$binary" "$@"
