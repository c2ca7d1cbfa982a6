#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pages.sh COMMAND [ARGUMENTS]
#
# Builds the program in hack/pages if it has changed, and runs it. `hack/pages.sh help` lists the commands.

PROGRAM=pages exec "${BASH_SOURCE[0]%/*}/patchset.sh" "$@"
