#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Functions that run test/node/e2e in a virtual machine with cgroup v2 and systemd. lib.sh sources this file if NODE_VM is set.

# What distributions have. Everything else on the disk comes from this repository and the kubernetes tree.
VM_PACKAGES=(
  linux-image-cloud-amd64 systemd-sysv dbus udev kmod mount procps iproute2 iptables runc etcd-server
  # For crashloop run.
  bubblewrap ca-certificates
  # For user namespaces, which runc 1.1 does not make, and for RUNTIME=crio.
  crun conmon skopeo
)
# Each may be set by the user. Without KVM, programs are about five times slower. VM_ACCEL=kvm uses it. VM_ACCEL=uml runs user-mode
# Linux instead of QEMU: programs are not slower, but system calls are. Debian's has one processor and no cpusets.
VM_ACCEL=${VM_ACCEL:-tcg,thread=multi} VM_MEMORY=${VM_MEMORY:-6144} VM_MINUTES=${VM_MINUTES:-240}
[[ $VM_MINUTES =~ ^[1-9][0-9]*$ ]] || die "VM_MINUTES=$VM_MINUTES is not a whole number of minutes"
# The limit for the test, which must end before the machine does, to print what hangs.
# shellcheck disable=SC2034 # Scripts that source lib.sh use it.
VM_LIMIT=$((VM_MINUTES * 54))s
# The check that runs, or the part of one, for make matrix.
VM_CHECK='node-vm'

# vm_needs fails if a program is missing that makes or runs the machine.
vm_needs() {
  local available memory=${TMPDIR:-${TMP:-${TEMP:-/dev/shm}}}
  [[ $(uname -m) == x86_64 ]] || die "the virtual machine is for x86_64, and this machine is $(uname -m)"
  if [[ $VM_ACCEL == uml ]]; then
    command -v linux.uml >/dev/null || die "missing on PATH: linux.uml" "on Debian or Ubuntu: apt-get install user-mode-linux"
    available=$(df --output=avail -m "$memory" | tail -1)
    ((available >= VM_MEMORY)) || die "user-mode Linux keeps its $VM_MEMORY MiB of memory in a file in $memory, which has $available MiB left: set VM_MEMORY or TMPDIR"
  else
    command -v qemu-system-x86_64 >/dev/null || die "missing on PATH: qemu-system-x86_64" "on Debian or Ubuntu: apt-get install qemu-system-x86"
  fi
  PATH=$PATH:/usr/sbin:/sbin
  need mmdebstrap genext2fs
  [[ $(id -u) == 0 ]] || command -v newuidmap >/dev/null ||
    die "missing on PATH: newuidmap, which mmdebstrap needs if not run as root" "on Debian or Ubuntu: apt-get install uidmap"
  command -v mke2fs debugfs resize2fs >/dev/null || die "missing on PATH: mke2fs, debugfs, resize2fs" "on Debian or Ubuntu: apt-get install e2fsprogs"
  available=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  ((available >= VM_MEMORY)) || die "the virtual machine has $VM_MEMORY MiB of memory, and this machine has $available left: set VM_MEMORY"
}

# vm_base makes the disk with Debian in $OUTPUT_DIR/vm, unless it exists. No program changes it.
vm_base() {
  local vm=$OUTPUT_DIR/vm stamp new
  stamp=$({ declare -p VM_PACKAGES && declare -f vm_base; } | sha256sum)
  [[ ! -e $vm/stamp || $(<"$vm/stamp") != "$stamp" ]] || return 0
  say "Making a disk with Debian for the virtual machine, about a minute"
  scratch_dir new
  # With the first cpuset or limit of CPU time, and again without the last one, the kernel rewrites instructions that it is running,
  # which sometimes crashes it in QEMU without KVM. AllowedCPUs and CPUQuota keep one all the time.
  cat >"$new/node.service" <<'UNIT'
[Service]
Type=oneshot
AllowedCPUs=0-1
CPUQuota=1000%
ExecStart=/bin/sh -c 'mount --mkdir LABEL=node /node && exec /node/run'
TimeoutStopSec=2
ExecStopPost=/bin/systemctl -ff poweroff
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
UNIT
  # The hooks run in the new system's namespace, "$1" is its root. Other getty units would take the console.
  # shellcheck disable=SC2016
  mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io --include="$(IFS=,; echo "${VM_PACKAGES[*]}")" \
    --customize-hook="copy-in $(printf %q "$new/node.service") /etc/systemd/system" \
    --customize-hook='chroot "$1" systemctl --quiet enable node.service' \
    --customize-hook='chroot "$1" systemctl --quiet mask serial-getty@ttyS0.service etcd.service' \
    --customize-hook="copy-out /boot $(printf %q "$new")" \
    trixie "$new/disk.ext2" || die "mmdebstrap could not make the disk"
  # The disk has no free space.
  truncate -s 4G "$new/disk.ext2"
  e2fsck -fy "$new/disk.ext2" >"$new/log" 2>&1 || true # It says whether it mended anything; resize2fs requires that it ran.
  resize2fs "$new/disk.ext2" >>"$new/log" 2>&1 || die "the disk cannot be enlarged:" "$(<"$new/log")"
  rm -rf "$vm"
  mkdir -p "$vm"
  mv "$new"/boot/vmlinuz-* "$vm/kernel"
  mv "$new"/boot/initrd.img-* "$vm/initrd"
  mv "$new/disk.ext2" "$vm/disk"
  printf '%s\n' "$stamp" >"$vm/stamp"
}

# run_in_vm STATE ARGUMENT... runs $STATE/e2e.test in the machine. It copies files among the arguments, and of folders with a
# comma between the kubelet and upstream's tests. The logs of a failed run come to $STATE/logs.
run_in_vm() {
  local state=$1 new arg args=() node vm uml machine guest='' options status='' stored i dirs ended=0 problem=''
  shift
  vm_base
  "$state/e2e.test" -build -runtime "$RUNTIME" -work "$state" || exit 1
  scratch_dir new
  node=$new/node
  mkdir "$node"
  for arg in "$@"; do
    if [[ $arg == /* && -f $arg ]]; then
      mkdir "$node/${#args[@]}"
      cp "$arg" "$node/${#args[@]}"
      arg=/node/${#args[@]}/${arg##*/}
    elif [[ $arg == /*,/* ]]; then
      IFS=, read -ra dirs <<<"$arg"
      for i in "${!dirs[@]}"; do
        mkdir "$node/${#args[@]}-$i"
        cp "${dirs[i]}/kubelet" "${dirs[i]}/e2e_node.test" "$node/${#args[@]}-$i"
        dirs[i]=/node/${#args[@]}-$i
      done
      arg=$(IFS=,; echo "${dirs[*]}")
    fi
    args+=("$arg")
  done
  cp -r "$state/bin" "$state/e2e.test" "$node"
  # The tests read files of the repository from test/node, as they do outside.
  mkdir -p "$node/test/node"
  cp -r "$KB_ROOT/deploy" "$node"
  options=(rw console=ttyS0 panic=-1 quiet loglevel=3 systemd.show_status=0 systemd.unified_cgroup_hierarchy=1)
  if [[ $VM_ACCEL == uml ]]; then
    machine=(
      linux.uml "mem=${VM_MEMORY}M" "uml_dir=$new" ncpus=2 seccomp=auto selinux=0 con=null ssl=null "ssl0=null,fd:1"
      "ubd0=$new/changes,$OUTPUT_DIR/vm/disk" "ubd1=$new/disk" root=/dev/ubda "${options[@]}"
    )
    # The kernel is a program of this machine, so its modules are not on the disk with Debian.
    uml=$(readlink -f "$(command -v linux.uml)")
    cp -r "${uml%/bin/*}/lib/uml/modules" "$node"
    # cAdvisor does not start without a clock speed.
    guest='mount --bind /node/modules /lib/modules
{ sed "/^$/d" /proc/cpuinfo && echo "cpu MHz : 1000.0"; } >/run/cpuinfo && mount --bind /run/cpuinfo /proc/cpuinfo'
  else
    # With snapshot=on the run does not change the disk with Debian. With highres=off a sleep takes at least a tick, 4 ms: Go's
    # runtime sleeps for 20 µs at a time, and a timer interrupt is expensive in QEMU without KVM.
    machine=(
      qemu-system-x86_64 -accel "$VM_ACCEL" -cpu max -smp 2 -m "$VM_MEMORY"
      -display none -monitor none -serial "file:$new/console" -nic none -no-reboot
      -kernel "$OUTPUT_DIR/vm/kernel" -initrd "$OUTPUT_DIR/vm/initrd" -append "root=/dev/vda highres=off ${options[*]}"
      -drive "file=$OUTPUT_DIR/vm/disk,format=raw,if=virtio,snapshot=on"
      -drive "file=$new/disk,format=raw,if=virtio,cache=unsafe"
    )
  fi
  # Pods can swap only if the machine does. On cgroup v2, containerd needs an inotify instance for each container, and Linux has
  # 128 by default. The file with the status is the last thing, so that it proves the end.
  cat >"$node/run" <<RUN
#!/bin/sh
$guest
cd /node
fallocate -l 512M swap && chmod 600 swap && mkswap swap >/dev/null && swapon swap
echo 8192 >/proc/sys/fs/inotify/max_user_instances
cd test/node
/node/e2e.test -machine -work /node$(printf ' %q' "${args[@]}")
echo \$? >/node/status
sync
RUN
  chmod +x "$node/run"
  mke2fs -q -t ext4 -L node -d "$node" "$new/disk" 12G >"$new/log" 2>&1 || die "mke2fs:" "$(<"$new/log")"
  rm -r "$node"
  say "Running in a virtual machine ($VM_ACCEL, $VM_MEMORY MiB, at most $VM_MINUTES minutes)"
  # QEMU opens the console by its name.
  touch "$new/console"
  timeout "${VM_MINUTES}m" "${machine[@]}" </dev/null >>"$new/console" &
  vm=$!
  on_exit "kill $vm 2>/dev/null; wait"
  tail -c +1 --pid="$vm" -s 0.2 -f "$new/console" | sed -u 's/\r//' &
  # A signal ends only wait, not a command in the foreground.
  wait "$vm" || ended=$?
  wait
  case $ended in
    0) ;;
    124) problem="the virtual machine did not end by itself within $VM_MINUTES minutes" ;;
    # The machine was stopped or cannot run here, which is not a result of the check.
    *) problem="${machine[0]} ended with exit status $ended" record=() ;;
  esac
  debugfs -R "rdump /logs $new" "$new/disk" >"$new/log" 2>&1
  if [[ -d $new/logs ]]; then
    mkdir -p "$state/logs"
    cp -r "$new/logs/." "$state/logs"
    note "logs of the virtual machine: $state/logs"
  fi
  debugfs -R "dump /status $new/status" "$new/disk" >"$new/log" 2>&1
  [[ ! -s $new/status ]] || status=$(<"$new/status")
  # The kernel crashed, which QEMU without KVM sometimes makes it do, and is no result either.
  [[ -n $status$problem ]] || problem='the virtual machine ended before the test' record=()
  # shellcheck disable=SC2154 # apply_series sets record.
  if ((${#record[@]} > 0)); then
    stored=(record "$VM_CHECK")
    [[ $status == 0 && -z $problem ]] || stored+=(--failed)
    "${record[1]}" "${stored[@]}" || exit 1
  fi
  [[ -z $problem ]] || die "$problem"
  exit "$status"
}
