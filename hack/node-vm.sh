#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# node-vm.sh [SCENARIO [ARGUMENTS OF THE TEST BINARY]]
#
# Runs node-e2e.sh, except upstream's tests, in a virtual machine with Debian, systemd and cgroup v2, whose kubelet and
# container runtime use the systemd cgroup driver. With the SCENARIO Conformance it runs node-conformance.sh there, except the
# specs of the series; its parts are Conformance/sig-storage, Conformance/lifecycle, Conformance/probes and Conformance/others.
# Needs no root: the machine is QEMU, and its disk is made from Debian packages by mmdebstrap.
# Set VM_ACCEL=kvm if this machine has KVM. VM_ACCEL=uml is user-mode Linux instead of QEMU, and faster than QEMU without KVM, but
# Debian's has one processor and no cpusets. Set VM_MEMORY for MiB other than 6144, and VM_MINUTES for a limit other than 240.
# The machine has no network. Only its disk with Debian stays, in _output/vm, and the logs of a failed run.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help
export NODE_VM=1
if [[ ${1:-} =~ ^Conformance(/.*)?$ ]]; then
  export VM_PART=${1#Conformance}
  exec "$KB_HACK/node-conformance.sh" "${@:2}"
fi
exec "$KB_HACK/node-e2e.sh" "$@"
