# Tailwater's commands. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo
SUDO := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo)

.PHONY: help
help: ## This list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build-deps
build-deps:
	@$(SUDO) ./deploy/install-build-deps.sh

.PHONY: lab-deps
lab-deps:
	@$(SUDO) ./tests/lab/install.sh

.PHONY: package-deps
package-deps: build-deps
	@$(SUDO) ./tests/packages/install.sh

.PHONY: python-deps
python-deps: build-deps
	@$(SUDO) ./tests/python/install-deps.sh
	@./tests/python/install.sh

.PHONY: lint-deps
lint-deps: build-deps
	@$(SUDO) ./tests/python/install-deps.sh
	@./tests/lint/install.sh

.PHONY: test-servers
test-servers:
	@./tests/servers/install.sh target/servers prometheus-alertmanager prometheus victoria-metrics

# Cargo decides the features of a dependency by the packages that are built together. All calls here build all packages, so that
# nothing is compiled twice: `programs` for what demonstrates and tests, `build` (optimised) for what measures or is used.
.PHONY: programs
programs: build-deps
	$(CARGO) build --workspace --locked --bins

.PHONY: build
build: build-deps ## Builds everything, optimised: target/release
	$(CARGO) build --workspace --locked --bins --release

.PHONY: packages
packages: package-deps ## .deb, .rpm and .tar.gz of agent and collector for glibc 2.28 and later: target/packages
	@$(SUDO) ./tests/python/install-deps.sh
	./deploy/packages/build.sh
	@$(SUDO) ./tests/packages/check-portable.sh target/packages

.PHONY: chart
chart: ## The Helm chart through Helm and the schemas of Kubernetes (needs Go)
	./tests/chart/check.sh

.PHONY: demo
demo: programs lab-deps ## Three real tiers, two injected millibottlenecks, each named with its root cause
	$(SUDO) ./target/debug/demo $(DEMO_FLAGS)

.PHONY: up
up: programs ## Collector and agent for this machine, page on http://127.0.0.1:4780
	$(SUDO) ./target/debug/tailwater up

.PHONY: test
test: lint unit privileged ## Everything CI runs: formatting, lints, licences, docs, unit and privileged tests

.PHONY: lint
lint: build-deps lint-deps page-check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	@$(CARGO) fetch --locked --quiet # crates of other platforms too: deny reads the licences of all of them
	target/lint/bin/cargo-deny --locked --offline check bans licenses sources

.PHONY: advisories
advisories: lint-deps ## RustSec advisories against the lockfile (needs the network)
	target/lint/bin/cargo-deny check advisories

# The built page is committed, so that cargo needs no Node; page-check proves that it is what its sources build to.
.PHONY: page-deps
page-deps:
	@command -v npm >/dev/null || { echo "the page needs Node 20 or later: install it, or leave collector/web alone" >&2; exit 1; }
	@cd collector/web && { cmp -s package-lock.json node_modules/.built-from || \
	  { npm ci --ignore-scripts --loglevel=error && cp package-lock.json node_modules/.built-from; }; }

.PHONY: page
page: page-deps ## Builds the page (collector/web) anew
	cd collector/web && npm run --silent build

.PHONY: page-check
page-check: page-deps
	cd collector/web && npm run --silent check
	@! grep -q '"resolved"' collector/web/package-lock.json tests/page/package-lock.json || \
	  { echo "a lockfile names a registry: npm install in its folder, with its .npmrc, writes it without" >&2; exit 1; }
	cd collector/web && PAGE_OUT=../../target/page npx vite build --logLevel warn
	@diff -rq target/page collector/web/dist || \
	  { echo "collector/web/dist is not what its sources build to: run make page and commit it" >&2; exit 1; }

.PHONY: unit
unit: build-deps python-deps test-servers ## Tests that need no privileges
	$(CARGO) test --workspace --locked --quiet -- --skip privileged_

# One at a time: they load kernel programs, take the machine's CPUs and its cgroups, and compare counts.
.PHONY: privileged
privileged: programs lab-deps package-deps ## Tests on real kernel programs, servers and drops (root)
	$(CARGO) test --workspace --locked --no-run --quiet
	@sync # what the build left to be written would stall the lab's disks
	$(SUDO) env "PATH=$$PATH" $(CARGO) test --workspace --locked --no-fail-fast privileged_ -- --test-threads=1 --nocapture

.PHONY: bench
bench: build lab-deps ## Price of the agent: ratios against a baseline of the same run
	$(SUDO) ./target/release/bench

.PHONY: lab-score
lab-score: build lab-deps ## The whole matrix, scored against the truth: tests/results (LAB_SCORE_FLAGS, about 45 minutes)
	$(SUDO) ./target/release/lab-score --label "$$(git describe --always --dirty)" $(LAB_SCORE_FLAGS)

.PHONY: lab-score-quick
lab-score-quick: build lab-deps ## Each cell of the matrix once
	$(SUDO) ./target/release/lab-score --repeat 1 --out .lab/score-quick --label "$$(git describe --always --dirty)" $(LAB_SCORE_FLAGS)

.PHONY: lab-down
lab-down: programs ## Removes whatever an interrupted lab left behind
	$(SUDO) ./target/debug/lab down

.PHONY: clean
clean:
	$(CARGO) clean
