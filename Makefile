# Bondstone. `make` alone lists what there is.

SHELL := /bin/bash
CARGO ?= cargo

.PHONY: help setup build host deb container demo test check bench bench-fib lint docs audit fuzz soak clean

help: ## Lists these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Installs what is missing of the system packages (apt; sudo when not root), says what and why
	@scripts/setup.sh build

build: setup ## Builds the program: target/release/bondstone
	$(CARGO) build --release --locked

host: setup ## Builds the same without what measures, alone in one file, for containers and VMs: target/release/bondstone-host
	@scripts/host.sh

deb: setup ## Builds the Debian package target/deb/bondstone_VERSION_ARCH.deb
	@scripts/deb.sh

container: setup ## Builds the container image target/container/bondstone.tar (OCI), without Docker
	@scripts/container.sh

demo: build ## Measures a firewall, a router and a monitor in memory, unprivileged; CAPTURE=my.pcap runs a chain over it
	@scripts/demo.sh $(if $(CAPTURE),"$(CAPTURE)")

test: ## Sets up and runs every test
	@scripts/setup.sh test
	@scripts/test.sh

check: ## The quick part of the tests: format, lints, unit tests, no traffic
	@scripts/setup.sh build
	@scripts/test.sh check

bench: build ## Measures NFs beside their C baselines, in one interleaved run; writes target/bench/native.json
	@scripts/bench.sh

bench-fib: setup ## Measures the exact-match table up to a billion entries, beside rte_hash and random lines; writes target/bench/fib.json
	@scripts/bench-fib.sh

lint: setup ## Checks format, lints, import cycles, retired words and scripts
	@scripts/lint.sh

docs: setup ## Builds the API documentation and the book, without warnings
	@scripts/docs.sh

audit: ## Checks licences and sources of dependencies with cargo-deny; installs it if it is missing
	@scripts/audit.sh

fuzz: ## Fuzzes every parser: TIME=600 seconds each, TARGET=name for one
	@scripts/setup.sh build
	@fuzz/run.sh $${TIME:-600} $(TARGET)

soak: build ## Runs the long tests: isolation of panics, a billion malformed packets through each NF, a billion table operations, sanitizers, shipped scenarios, an emulated NIC, an hour of fuzzing
	$(CARGO) run --release --locked -p bondstone-runtime --example panics -- --judge
	$(CARGO) run --release --locked -p bondstone-runtime --example reloads -- --judge --seconds 60
	ATTACK_PACKETS=$${PACKETS:-1000000000} ATTACK_SESSIONS=100000000 \
		$(CARGO) test --release --locked -p bondstone-nf --test it -- attack:: --nocapture --test-threads 1
	CUCKOO_OPERATIONS=$${OPERATIONS:-1000000000} \
		$(CARGO) test --release --locked -p bondstone-tables --test it -- cuckoo_churn:: --nocapture --test-threads 1
	scripts/sanitize.sh address
	scripts/sanitize.sh thread
	scripts/sanitize.sh miri
	scripts/emulated-nic.sh
	$(CARGO) test --release --locked -p bondstone-cli --test it -- --ignored --test-threads 1
	@fuzz/run.sh $${TIME:-3600}

clean: ## Removes what was built
	$(CARGO) clean
