# Tailwater's commands. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo
SUDO := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo)
# Tells of a long step while it lasts: STEP name what usually command. Sudo has to ask for a password before.
STEP := ./deploy/step.sh
ASK := $(if $(SUDO),sudo -v,true)

.PHONY: help
help: ## This list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build-deps
build-deps:
	@$(ASK) && $(STEP) build-deps "What building needs is installed" "1 min" $(SUDO) ./deploy/install-build-deps.sh

.PHONY: lab-deps
lab-deps:
	@$(ASK) && $(STEP) lab-deps "The servers of the laboratory are installed" "1 min" $(SUDO) ./tests/lab/install.sh

.PHONY: package-deps
package-deps: build-deps
	@$(ASK) && $(STEP) package-deps "What packages are tested with is installed" "10 s" $(SUDO) ./tests/packages/install.sh

.PHONY: graph-deps
graph-deps: build-deps lab-deps
	@$(ASK) && $(STEP) graph-deps "The services of goroutines and of Tomcat are compiled" "40 s" $(SUDO) env "PATH=$$PATH" ./tests/graph/install.sh

.PHONY: python-deps
python-deps: build-deps
	@$(ASK) && $(STEP) python-deps "Python is installed" "10 s" $(SUDO) ./tests/python/install-deps.sh
	@$(STEP) python "The Python client of the tests is installed" "10 s" ./tests/python/install.sh

.PHONY: lint-deps
lint-deps: build-deps
	@$(SUDO) ./tests/python/install-deps.sh
	@./tests/lint/install.sh

.PHONY: test-servers
test-servers:
	@$(STEP) test-servers "Servers that tests talk to are fetched" "20 s" \
	  ./tests/servers/install.sh target/servers prometheus-alertmanager prometheus victoria-metrics

# Cargo decides the features of a dependency by the packages that are built together. All calls here build all packages, so that
# nothing is compiled twice: `programs` for what demonstrates and tests, `build` (optimised) for what measures or is used.
.PHONY: programs
programs: build-deps
	@$(STEP) programs "Agent, collector and laboratory are compiled" "4 min" $(CARGO) build --workspace --locked --bins

.PHONY: build
build: build-deps ## Builds everything, optimised: target/release
	@$(STEP) build "Agent, collector and laboratory are compiled" "5 min" $(CARGO) build --workspace --locked --bins --release

.PHONY: packages
packages: package-deps ## .deb, .rpm and .tar.gz of agent and collector for glibc 2.28 and later: target/packages
	@$(SUDO) ./tests/python/install-deps.sh
	./deploy/packages/build.sh
	@$(SUDO) ./tests/packages/check-portable.sh target/packages

.PHONY: chart
chart: ## The Helm chart through Helm and the schemas of Kubernetes (needs Go)
	./tests/chart/check.sh

.PHONY: chart-apply
chart-apply: ## The same, and the chart installed in a real API server, built for it (Go 1.26, some four minutes the first time)
	./tests/chart/apply.sh

.PHONY: container-check
container-check: ## Both images of deploy/container, built and started (CONTAINER_PROGRAMS=target/release: with programs built before)
	@$(SUDO) ./tests/container/install.sh
	$(SUDO) env "PATH=$$PATH" ./tests/container/check.sh $(CONTAINER_PROGRAMS)

.PHONY: demo
demo: programs lab-deps ## Three real tiers, two injected millibottlenecks, each named with its root cause
	@sync # what the build left to be written would stall the lab's disks
	@$(SUDO) ./target/debug/demo $(DEMO_FLAGS)

.PHONY: replay
replay: ## The page on a recorded incident: no root, no kernel feature, http://127.0.0.1:4780
	@# Alone it takes neither clang nor most of the crates; where everything is built, that is not compiled again with other features.
	$(CARGO) build --locked $(if $(wildcard target/debug/tailwater-agent),--workspace --bins,-p tailwater)
	./target/debug/tailwater replay $(or $(RECORDING),deploy/recordings/first-incident.trace.zst) --serve $(REPLAY_FLAGS)

.PHONY: up
up: programs ## Collector and agent for this machine, page on http://127.0.0.1:4780
	$(SUDO) ./target/debug/tailwater up

.PHONY: test
test: ## Everything CI runs: formatting, lints, licences, docs, unit and privileged tests
	@# What fails early does not hide what fails late: one run, which takes most of an hour where nothing is built, tells all of it.
	@$(SUDO) rm -f target/units/failed target/privileged/failed
	@failed=; for part in lint unit privileged; do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	  [ -z "$$failed" ] || { for of in target/units target/privileged; do ./tests/failed.sh $$of || true; done; \
	  echo "make test failed in:$$failed (each by itself: make lint, make unit, make privileged)" >&2; exit 1; }

.PHONY: check
check: build-deps ## The quick look before a commit: format, lints, unit tests of the crates that changed (SINCE=COMMIT)
	./tests/check.sh $(SINCE)

.PHONY: lint
lint: build-deps lint-deps page-check
	@# Whoever writes to a reader that stops early is ended by SIGPIPE, now and then, and with pipefail the script fails: read to the end.
	@! git grep -nE '[|] *(head|grep -[a-zA-Z]*q)' -- '*.sh' Makefile || \
	  { echo "a pipe into a reader that stops early: sed -n 1,Np in place of head, grep >/dev/null in place of grep -q" >&2; exit 1; }
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
	  { ../../deploy/again.sh npm ci --ignore-scripts --loglevel=error && cp package-lock.json node_modules/.built-from; }; }

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

.PHONY: picture
picture: programs ## The page's picture in the README, from the recording that ships: collector/docs/page.png (root, for Chromium)
	$(CARGO) test --workspace --locked --no-run --quiet --test replay_page
	$(SUDO) env "PATH=$$PATH" $(CARGO) test --workspace --locked --quiet --test replay_page privileged_a_recording
	cp target/page-screenshots/page.png collector/docs/page.png

.PHONY: unit
unit: build-deps python-deps test-servers ## Tests that need no privileges
	./tests/units.sh

.PHONY: privileged
privileged: programs lab-deps package-deps graph-deps ## Tests on real kernel programs, servers and drops (root)
	@$(STEP) tests "The tests are compiled" "5 min" $(CARGO) test --workspace --locked --no-run --tests
	@sync # what the build left to be written would stall the lab's disks
	$(SUDO) env "PATH=$$PATH" $${CARGO_INCREMENTAL+CARGO_INCREMENTAL=$$CARGO_INCREMENTAL} ./tests/privileged.sh

.PHONY: scale
scale: build ## How many agents one collector serves: simulated agents on a real one (root for its cgroup, some 8 minutes; SCALE_FLAGS)
	@$(SUDO) ./target/release/scale $(SCALE_FLAGS)

# What a loaded or weaker host finds out otherwise.
SPEED := 50
.PHONY: test-slow
test-slow: programs lab-deps ## The tests that measure, on a machine at half its speed (root, about 15 minutes; SPEED=30 for less)
	@$(STEP) tests "The tests are compiled" "5 min" $(CARGO) test --workspace --locked --no-run
	$(SUDO) env "PATH=$$PATH" ./target/debug/slowdown $(SPEED) $(CARGO) test --workspace --locked --no-fail-fast \
	  $(addprefix --test privileged_,clocks end_to_end lab lab_fit lab_score net_accept_queue listen_drops sched) -- \
	  privileged_ --test-threads=1 --nocapture

# Not part of `make test` while one of some two hundred runs tells two or four packets too many of 10,000.
.PHONY: waves
waves: ## Ten thousand overflows in a second, counted to the packet, ten times over (root)
	$(CARGO) test --workspace --locked --no-run
	for i in {1..10}; do $(SUDO) env "PATH=$$PATH" $(CARGO) test --workspace --locked --test privileged_net_accept_queue -- \
	  --ignored --nocapture privileged_a_thousand_waves || exit 1; done

.PHONY: fuzz
fuzz: build-deps ## The parsers of foreign bytes against libFuzzer, guided by coverage (FUZZ_SECONDS=60 each, TARGET=wire for one)
	./tests/fuzz/run.sh

.PHONY: fuzz-minimize
fuzz-minimize: build-deps ## What `make fuzz` found to cover more goes into the corpora that `make test` replays
	./tests/fuzz/run.sh minimize

.PHONY: bench
bench: build lab-deps ## Price of the agent: ratios against a baseline of the same run
	$(SUDO) ./target/release/bench

.PHONY: latency
latency: build lab-deps ## 240 first drops to the webhook, on a quiet machine and beside two spinners, with the time of each stage
	$(SUDO) ./target/release/bench --only latency

.PHONY: lab-score
lab-score: build lab-deps ## The whole matrix, scored against the truth: tests/results (LAB_SCORE_FLAGS, about 45 minutes)
	$(SUDO) ./target/release/lab-score --label "$$(git describe --always --dirty)" $(LAB_SCORE_FLAGS)

.PHONY: lab-score-quick
lab-score-quick: build lab-deps ## Each cell of the matrix once
	$(SUDO) ./target/release/lab-score --repeat 1 --out .lab/score-quick --label "$$(git describe --always --dirty)" $(LAB_SCORE_FLAGS)

.PHONY: sizing-score
sizing-score: build lab-deps ## Advice about pools against sweeps of them: tests/results (about 3 hours; SIZING_SCORE_FLAGS=--quick: 6 minutes)
	$(SUDO) ./target/release/sizing-score --label "$$(git describe --always --dirty)" $(SIZING_SCORE_FLAGS)

.PHONY: prevention-score
prevention-score: build lab-deps ## What is said would have prevented an incident against servers that were changed so: tests/results (about 75 minutes)
	$(SUDO) ./target/release/prevention-score --label "$$(git describe --always --dirty)" $(PREVENTION_SCORE_FLAGS)

.PHONY: stealing-score
stealing-score: build lab-deps ## Whose the CPU of a cgroup is that two databases share, what is said of it and what each remedy does: tests/results (about 25 minutes)
	$(SUDO) ./target/release/stealing-score --label "$$(git describe --always --dirty)" $(STEALING_SCORE_FLAGS)

.PHONY: graph-score
graph-score: build graph-deps ## Service graphs from seeds, hurt and scored against the truth (GRAPH_SCORE_FLAGS: --quick 2 minutes, --scored 25 and the ledger)
	$(SUDO) ./target/release/graph-score --label "$$(git describe --always --dirty)" \
	  --commit "$$(git rev-parse HEAD)$$(test -z "$$(git status --porcelain -- . ':!tests/results')" || echo -dirty)" $(GRAPH_SCORE_FLAGS)

.PHONY: peers
peers: build ## What other methods of root-cause analysis say about golden recordings, beside Tailwater: tests/results (about 15 minutes; PEERS_FLAGS)
	@tests/peers/install.sh
	@./target/release/peers --label "$$(git describe --always --dirty), $$(date -u +%F)" $(PEERS_FLAGS)

.PHONY: kernel-matrix
kernel-matrix: programs ## The agent on kernels from 5.10 to the newest, booted in QEMU (about 15 minutes; KERNELS="6.1;6.12" for some)
	$(SUDO) ./target/debug/kernel-matrix $(if $(KERNELS),--only "$(KERNELS)")

.PHONY: bench-sizes
bench-sizes: programs ## What many CPUs, cgroups, listeners and edges cost: bytes of maps, and the reading of a window, as ratios
	$(SUDO) env "PATH=$$PATH" $(CARGO) test --workspace --locked --test privileged_sizes --test privileged_many_connections -- \
	  --include-ignored --test-threads=1 --nocapture
	$(CARGO) test -p tailwater-agent --locked --release --lib bench_what_reading -- --ignored --nocapture

.PHONY: endurance
endurance: programs ## A million processes and a hundred thousand cgroups in real maps (root, some 15 minutes)
	$(SUDO) env "PATH=$$PATH" $(CARGO) test --workspace --locked --test privileged_endurance -- --ignored --test-threads=1 --nocapture

.PHONY: kernel-types
kernel-types: programs ## Other kernels' types, of which the tests hold what the programs ask for (tests/kernels/types) made anew
	$(SUDO) tests/kernels/kernel_types.sh "$$(ls -dt target/debug/build/tailwater-ebpf-*/out | sed -n 1p)"

# RECORDINGS: besides the golden traces, e.g. of a lab-score.
.PHONY: constants
constants: programs ## What each number of the analysis changes at half and at double, on all golden traces and 120 simulated systems: collector/docs/constants.md (an hour; NAMES for some)
	rm -rf target/constants/inputs && mkdir -p target/constants/inputs
	$(CARGO) build --workspace --locked --examples
	./target/debug/examples/inputs target/constants/inputs tests/golden/*.trace.zst $(RECORDINGS)
	./target/debug/examples/simulated target/constants/inputs 120
	./tests/constants/constants.py target/constants/inputs $(or $(OUT),collector/docs/constants.md) $(NAMES)

# LAB: the folder of a lab-score with its sessions. GRAPHS: that of a graph-score of seeds 1 to 5. SYSTEMS: how many simulated ones.
.PHONY: calibrate
calibrate: programs ## How sure a root is, learnt anew of recordings with known truth: weights into the analysis, figures into tests/results (LAB, SYSTEMS)
	rm -rf target/calibrate && mkdir -p target/calibrate/inputs
	$(CARGO) build --workspace --locked --examples
	./target/debug/examples/inputs target/calibrate/inputs tests/golden/*.trace.zst $(or $(LAB),.lab/score)/*/session.trace \
		$(wildcard $(or $(GRAPHS),.lab/graph)/[1-5]/session.trace)
	./target/debug/examples/simulated target/calibrate/inputs $(or $(SYSTEMS),600)
	./target/debug/examples/incidents target/calibrate/inputs/*.inputs >target/calibrate/told.jsonl
	./target/debug/calibrate --told target/calibrate/told.jsonl --inputs target/calibrate/inputs --lab $(or $(LAB),.lab/score) \
		--graphs $(or $(GRAPHS),.lab/graph) --label "$$(git describe --always --dirty)" --date "$$(date +%F)"

.PHONY: lab-down
lab-down: programs ## Removes whatever an interrupted lab left behind
	$(SUDO) ./target/debug/lab down

.PHONY: clean
clean:
	$(CARGO) clean
