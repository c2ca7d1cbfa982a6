# SPDX-License-Identifier: Apache-2.0
#
# `make` alone prints the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:

# The scripts read the other variables (make help) themselves: make passes on what its command line and environment set.
FUZZTIME ?= 30s
SCENARIO ?=

.PHONY: help kubelet test test-all test-modules search test-patched test-kubelet verify verify-all matrix deviations docs bench node-timing node-load node-e2e node-soak node-skew node-cluster node-conformance node-vm apply vendor reverse refresh series stat dist fetch fuzz lint vulncheck clean

help: ## print this
	@echo "Targets:"
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 20
	@echo "Variables:"
	@printf '  %-14s%s\n' \
	  KUBE_VERSION "the kubernetes release (now: $${KUBE_VERSION:-$$(sed -n 's/^tag: *//p' patches/v*/BASE 2>/dev/null | sort -V | tail -n1)})" \
	  KUBE_ROOT "an existing git checkout or source tree to use instead of fetching one" \
	  SERIES "parts of the series: core, cost, asked, or all (now: $${SERIES:-core cost})" \
	  SKIP "names of patches to leave out, e.g. SKIP=\"images hosts\"" \
	  SCENARIO "a regular expression: which scenarios node-e2e and node-vm run, e.g. Deleted or Pods/Deleted (now: $${SCENARIO:-all})" \
	  RUNTIME "the container runtime of node-e2e, node-timing and node-vm: containerd, crio (with crun) or crio-runc (now: $${RUNTIME:-containerd})" \
	  FUZZTIME "how long to fuzz each target (now: $(FUZZTIME))"

kubelet: ## fetch, apply and build: _output/VERSION/kubelet
	@hack/build.sh --check
	@hack/patchset.sh apply --keep
	@hack/build.sh kubelet

test: ## unit tests with the race detector, gofmt, go vet, staticcheck
	@$(MAKE) test-modules SHORT=-short
	@echo "make test leaves out what takes more than ten seconds: make test-all runs that too"

test-all: ## all tests: also the full search, rules and dashboards in Prometheus, and killed commands of the tool
	@$(MAKE) test-modules SHORT=
	@echo "==> go test -short ./... with the versions in go.mod, which are older than those of the workspace"
	@GOWORK=off go test -count=1 -short ./...
	@$(MAKE) search
	@echo "==> go test ./... in test/deploy"
	@cd test/deploy && go test -count=1 ./...

test-modules:
	@command -v gcc >/dev/null || command -v clang >/dev/null || { echo "error: the race detector needs a C compiler: apt-get install gcc libc6-dev" >&2; exit 1; }
	@# With -race, so that the race detector's packages are the only ones to compile.
	@CGO_ENABLED=1 GOFLAGS="$$(go env GOFLAGS) -race" hack/lint.sh
	@# Many tests wait for processes, so there are more at once than processors. lint.sh has run go vet. The longest come first.
	@# -count=1: go test repeats a result although a file outside of the test's module, or one that a command reads, has changed.
	@echo "==> go test -race $(SHORT) in all modules but test/deploy"
	@CGO_ENABLED=1 go test -count=1 -race -vet=off -p $$(($$(nproc) * 2)) -timeout 60m $(SHORT) \
	  ./crashloop/... ./test/... ./agent/... ./test/node/... ./hack/... ./examples/agent/... ./...

search: ## search all interleavings of events in a pod restart for a broken invariant
	@echo "==> the search of restartpod, in full: half a minute"
	@go test -count=1 -v -run '^TestInvariants$$' ./restartpod | grep -E '^ok|^FAIL|worlds|I[0-9]+:|^ +(step|crash|exit|started|stop|tick|delete|lose-sandbox)'

test-patched: ## upstream's tests and ours in the patched tree
	@hack/patchset.sh apply --keep
	@hack/test-patched.sh

test-kubelet: ## start the patched kubelet with every kind of back-off configuration
	@hack/test-kubelet.sh

verify: ## check that the patches apply, type-check one by one, build and reverse
	@hack/patchset.sh verify

verify-all: ## apply, build and test each series on its release; repeats no check that passed
	@hack/verify-all.sh

matrix: ## write the patches and the check results of each release: docs/results/releases.md
	@hack/pages.sh matrix --write

deviations: ## write how each release differs from upstream: docs/deviations.md
	@hack/pages.sh deviations --write

docs: ## write the pages and graphs that crashloop plan computes: docs/plan.md, docs/results/keps.md, docs/results/plan.md
	@go test -count=1 ./crashloop/internal/fleet/pages -update
	@go test -count=1 ./crashloop -run '^TestDocs$$/^docs$$/^plan.md$$' -update

bench: ## compare with client-go's back-off at 30 to 1 000 000 keys
	@go run ./test/bench

node-timing: ## time restarts on a real node, stock kubelet and ours (root)
	@hack/node-timing.sh

node-load: ## measure what restarts cost on a full node, stock kubelet and ours (root)
	@hack/node-load.sh

node-e2e: ## restart pods in place on a real node, in each scenario (root)
	@hack/node-e2e.sh '$(SCENARIO)'

node-soak: ## kill the parts of a full node for two hours, while its pods crash (root)
	@hack/node-e2e.sh Soak

node-vm: ## the scenarios of node-e2e in a virtual machine with systemd and cgroup v2 (no root)
	@hack/node-vm.sh '$(SCENARIO)'

node-skew: ## take a real node through kubelets of several releases, stock and ours (root)
	@hack/node-skew.sh

node-cluster: ## take a cluster with the real control plane from stock kubelets to ours and back (root)
	@hack/node-cluster.sh

node-conformance: ## upstream's NodeConformance specs, and those of the series (root)
	@hack/node-conformance.sh

apply: ## apply the series to the tree, on a branch with one commit per patch
	@hack/patchset.sh apply

vendor: ## after apply: import the library from the tree's vendor folder, instead of copies
	@hack/vendor.sh

reverse: ## remove the series and restore the tree
	@hack/patchset.sh reverse

refresh: ## write the commits of the branch to the patches
	@hack/patchset.sh refresh

series: ## write the series of KUBE_VERSION in mailbox format for plain git am: _output/series
	@hack/patchset.sh export

stat: ## count the changed lines of upstream's files
	@hack/pages.sh stat

dist: ## make a release archive of the commit that is checked out: _output/dist
	@hack/dist.sh

fetch: ## get the source tree of KUBE_VERSION into _output
	@hack/patchset.sh fetch

fuzz: ## fuzz every fuzz target, each for FUZZTIME
	@for dir in . agent crashloop hack test; do \
	  (cd "$$dir" && go test -list '^Fuzz' ./...); \
	done | \
	  awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }' | \
	  while read -r pkg name; do \
	    echo "==> $$name in $$pkg"; \
	    go test "$$pkg" -run '^$$' -fuzz "^$$name$$" -fuzztime '$(FUZZTIME)' </dev/null; \
	  done

lint: ## gofmt, go vet, staticcheck, and shellcheck where installed
	@hack/lint.sh

vulncheck: ## look for known vulnerabilities with govulncheck (needs vuln.go.dev)
	@# The modules below test/ raise versions in go.work, which nobody who installs the command gets.
	@vulncheck=$$(GOWORK=off go tool -modfile=hack/tools/go.mod -n govulncheck); \
	export GOWORK="$$PWD/.vulncheck.work"; trap 'rm -f .vulncheck.work .vulncheck.work.sum' EXIT; cp go.work "$$GOWORK"; \
	go work edit $$(sed -nE 's,^\t(\./(hack|test|examples).*),-dropuse=\1,p' go.work); \
	for dir in . agent crashloop; do echo "==> govulncheck ./... in $$dir"; "$$vulncheck" -C "$$dir" ./...; done; \
	echo "==> govulncheck ./... in hack"; GOWORK=off "$$vulncheck" -C hack ./...

clean: ## remove builds, disks, results and mails from _output, and no source tree
	@rm -rf _output/bin _output/dist _output/node _output/releases _output/series _output/v*/kubelet* _output/v*/kube-* _output/v*/*.test _output/v*/stock _output/vm
