#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-patched.sh [GO TEST ARGUMENTS]
#
# Runs `go test` in the patched tree (found as by make apply, which must have run): upstream's tests and ours of
# every package that a patch touches and of the packages with the container back-off. Then it runs the integration tests of
# the patches, with an etcd of its own. hack/node-conformance.sh runs their tests of a node.

# shellcheck source=hack/lib.sh
source "${BASH_SOURCE[0]%/*}/lib.sh"
[[ ${1:-} != -h && ${1:-} != --help ]] || show_help

need go
load_tree --applied
touched=$(patchset packages) || exit 1
# These need a node or etcd.
mapfile -t integration < <(grep '^\./test/integration/' <<<"$touched")
# After make vendor, the copies of the library are gone.
touched=$(grep -vE '^\./test/(e2e_node|integration/.*)$' <<<"$touched" | while read -r p; do [[ $p == ./* ]] && ! compgen -G "$TREE/$p/*.go" >/dev/null || echo "$p"; done)
mapfile -t packages < <(
  {
    printf '%s\n' "$touched"
    [[ ! -d $TREE/staging/src/k8s.io/client-go/util/flowcontrol ]] || echo k8s.io/client-go/util/flowcontrol
    for dir in pkg/kubelet/container pkg/kubelet/kuberuntime pkg/kubelet/util/queue pkg/kubelet; do
      [[ ! -d $TREE/$dir ]] || echo "./$dir"
    done
  } | sort -u
)

say "Testing ${#packages[@]} packages in $TREE (kubernetes $VERSION, $BRANCH)"
printf '    %s\n' "${packages[@]}"
one_at_a_time
go_env_for_tree "$TREE"
# Only the race detector needs cgo.
case " $* " in *' -race '*) export CGO_ENABLED=1 ;; esac
scratch_dir WORK
keep_work_sum "$TREE"
in_src() { cd "$TREE" && "$@"; }
start=$SECONDS
# On a busy machine a package may take longer than the default limit of ten minutes.
STREAM=1 run_long "go test" "$WORK/log" in_src go test -timeout 30m "$@" "${packages[@]}" ||
  die "tests fail in the patched tree, see above:" "$(grep -E -A30 '^ *--- FAIL|^panic:|^WARNING: DATA RACE' "$WORK/log" | head -n 80)"
say "All ${#packages[@]} packages pass ($((SECONDS - start)) s)"

((${#integration[@]} > 0)) || exit 0
if ! command -v etcd >/dev/null; then
  note "skipped: ${integration[*]}, because etcd is not on PATH: on Debian or Ubuntu: apt-get install etcd-server"
  exit 0
fi
# start_etcd starts an empty etcd on a free port. Upstream's tests start one if they find none, with a socket at a path that
# etcd 3.4, Debian's, does not listen on.
start_etcd() {
  local port url pid i
  port_answers() { (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
  port=$((20000 + RANDOM % 10000))
  while port_answers; do port=$((port + 1)); done
  url=http://127.0.0.1:$port
  etcd --data-dir "$WORK/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" --listen-peer-urls http://127.0.0.1:0 >"$WORK/etcd.log" 2>&1 &
  pid=$!
  on_exit "kill $pid 2>/dev/null; wait $pid"
  for ((i = 0; i < 300; i++)); do
    ! port_answers || break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  port_answers || die "etcd does not start:" "$(tail -n 20 "$WORK/etcd.log")"
  export KUBE_INTEGRATION_ETCD_URL=$url
}
start_etcd
# In programs that are built with -trimpath, test API servers look for their files below this.
mkdir -p "$WORK/src/k8s.io"
ln -s "$TREE" "$WORK/src/k8s.io/kubernetes"
export TEST_SRCDIR=$WORK TEST_WORKSPACE=src
say "Running integration tests: ${integration[*]}"
STREAM=1 run_long "go test" "$WORK/integration.log" in_src go test -timeout 30m "$@" "${integration[@]}" ||
  die "integration tests fail in the patched tree, see above:" "$(grep -E -A30 '^ *--- FAIL|^panic:|^WARNING: DATA RACE' "$WORK/integration.log" | head -n 80)"
say "The integration tests pass"
