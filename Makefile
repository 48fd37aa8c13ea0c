# Targets of the project. `make demo` and `make test` install missing packages (Debian, with a Rust toolchain).

# Tests, benchmarks and installations have the page of `watari watch` and measure OpenSSL. The demo has neither.
FULL = --features watari/full
# `watari --version` and the results of `watari lab` have the commit.
COMMIT = WATARI_COMMIT="$$(git describe --always --dirty 2>/dev/null)"

.PHONY: demo demo-up install test lint fmt docs model sim chaos scenario-b soak fuzz bench crowd origins moves paper lab cgroup2 deny deps clean

# Starts a whole cluster on loopback, sends 400 connections through it, and prints how they ended.
demo:
	@scripts/deps
	cargo run --profile demo --locked -- demo --once

# Starts the same cluster, prints its addresses, and keeps it running until Ctrl-C.
demo-up:
	@scripts/deps
	cargo run --profile demo --locked -- demo

# Builds the release and installs it with manual pages and completions for bash, zsh and fish. DESTDIR is for packages.
PREFIX ?= /usr/local
install:
	@scripts/deps build
	$(COMMIT) cargo build --release --locked --package watari $(FULL)
	scripts/install $(DESTDIR)$(PREFIX)

# Runs everything that CI runs. The last lines are the summary of the tests.
test: lint
	@scripts/deps test
	scripts/run-tests

lint: deps
	scripts/lint-words
	cargo fmt --all --check
	cargo clippy --workspace --locked --all-targets $(FULL) -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --locked $(FULL) --no-deps --document-private-items --quiet

fmt:
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

# Writes docs/configuration.md and docs/configuration.schema.json from the types of the configuration.
docs: deps
	cargo test --workspace --locked $(FULL) --bin watari -- --ignored --exact config::reference::write_the_documentation

# Explores every interleaving that the models of the move and of takeover contain, and prints the number of states.
model: deps
	cargo test --release --locked --package watari-handoff --test model -- --nocapture --include-ignored --test-threads 1
	cargo test --release --locked --package watari-takeover --test model -- --nocapture --include-ignored --test-threads 1

# Simulates SEEDS whole clusters with lost messages, crashes and moves. A failure prints its seed, which replays it.
SEEDS ?= 5000
sim: deps
	SIM_SEEDS=$(SEEDS) cargo test --release --locked --package watari-sim --test simulation -- --ignored --nocapture --exact many_seeds

# Kills and stops nodes at random, 1,200 times, while clients count every byte. Prints the seed. Then kills, stops and
# cuts off the owner of a service address, 200 times, while a client looks for a second owner. Then does all that, and
# partitions networks and steps clocks, several at a time, for CHAOS_S seconds.
CHAOS_S ?= 300
chaos: deps
	cargo test --locked --package watari --test cluster -- --ignored --nocapture chaos
	TAKEOVER_FAULTS=200 cargo test --locked --package watari --test takeover -- --nocapture --exact faults::many_faults
	TAKEOVER_CHAOS_S=$(CHAOS_S) cargo test --locked --package watari --test takeover -- --nocapture --exact chaos::no_two_machines_answer

# Runs the paper's scenario B at its full size and prints a table. Clients: OpenSSL, rustls, Go and JSSE. Every mode,
# with 2 and 5 agents.
scenario-b: deps
	@scripts/deps test
	cargo test --locked --package watari --test cluster -- --ignored --nocapture --exact scenario_b::everything_at_full_size

# Runs a mixed load for SOAK_S seconds, in which no node's memory may grow, and no connection may end unless its agent
# dies. Measures the memory of idle connections. Loads of agents swing by 15 % for SOAK_S seconds, in which rebalancing
# may move no connection.
SOAK_S ?= 600
soak: deps
	SOAK_S=$(SOAK_S) cargo test --locked --package watari --test cluster -- --ignored --nocapture soak

# Fuzzes all parsers and state machines with hostile bytes and schedules, FUZZ_S seconds for each target.
FUZZ_S ?= 300
fuzz: deps
	@scripts/deps fuzz
	scripts/fuzz $(FUZZ_S)

# Compares Watari with nginx, HAProxy and rustls, and writes docs/benchmarks.md. Takes an hour. No other load
# should run on the machine.
bench:
	@scripts/deps bench
	cargo build --release --locked --package watari --package watari-benchmarks $(FULL)
	scripts/bench --out docs/benchmarks.md

# Holds 60,000 connections in progress to nginx on this machine, for CROWD_S seconds, within 4 GiB of memory.
CROWD_S ?= 60
crowd:
	@scripts/deps bench
	cargo build --release --locked --package watari
	CROWD_S=$(CROWD_S) scripts/crowd

# Tests third-party servers for the features that transfers need, moves some transfers, and writes both results into
# docs/origins.md.
origins: deps
	@scripts/deps test
	cargo test --locked --package watari-test-origins --test real -- --ignored --exact write_the_table
	cargo test --locked --package watari-proxy --test proxy -- --ignored --exact compatibility::write_the_table

# Moves random transfers between random origins, good and bad. MOVES_CASES is the number of cases. Prints the seed.
MOVES_CASES ?= 2000
moves: deps
	MOVES_CASES=$(MOVES_CASES) MOVES_SEED=$${MOVES_SEED:-$$(date +%s)} \
		cargo test --locked --package watari-proxy --test proxy -- --nocapture moves::

# Repeats the experiments of Doi and Goto with the proxy as it is, and prints the measurements.
paper: deps
	cargo test --release --locked --package watari-proxy --test paper -- --nocapture --test-threads 1

# Runs every experiment of `watari lab`, as root: five rounds each, about five hours, and writes docs/reproduction.md.
# LAB="--quick" has smaller loads, and writes no document.
LAB ?=
lab: deps
	@scripts/deps lab
	$(COMMIT) cargo build --release --locked --package watari $(FULL)
	target/release/watari lab run --all $(LAB); status=$$?; \
	target/release/watari lab report $(if $(LAB),,--markdown docs/reproduction.md) && exit $$status

# Runs the tests of the lab's hosts in a virtual machine, whose kernel has control groups of version 2.
cgroup2: deps
	@scripts/deps vm
	program=$$(cargo test --locked --package watari-lab --test testbed --no-run 2>&1 | sed -n 's/.*testbed.rs (\(.*\))/\1/p') && \
		scripts/in-vm "$$(realpath "$$program")" --include-ignored

# Checks licences, sources, duplicates and known vulnerabilities. The vulnerabilities need the network. Run `cargo
# install cargo-deny` first.
deny:
	cargo deny --locked check

deps:
	@scripts/deps build

clean:
	cargo clean
