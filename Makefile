# What there is to do. `make demo` and `make test` install what they miss (Debian, with a Rust toolchain).

.PHONY: demo demo-up test lint fmt model chaos scenario-b soak fuzz bench crowd origins moves paper deny deps clean

# A whole cluster on loopback goes through 400 connections, and prints what became of them.
demo: deps
	cargo run --release --locked --package watari -- demo --once

# The same cluster stays up until Ctrl-C, and says how to reach it.
demo-up: deps
	cargo run --release --locked --package watari -- demo

# The documentation's examples go first: the last lines are the summary of the tests.
test: deps lint
	@scripts/deps test
	cargo test --workspace --locked --doc --quiet
	scripts/run-tests

lint: deps
	cargo fmt --all --check
	cargo clippy --workspace --locked --all-targets -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --locked --no-deps --document-private-items --quiet

fmt:
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

# Explores every interleaving of the move that the model knows; prints how many states that were.
model: deps
	cargo test --release --locked --package watari-handoff --test model -- --nocapture --include-ignored --test-threads 1

# Kills and stops nodes at random, 1,200 times, while clients count every byte; prints the seed.
chaos: deps
	cargo test --locked --package watari --test cluster -- --ignored --nocapture chaos

# The paper's scenario B at its full size, by OpenSSL, rustls, Go and JSSE, in every mode, over 2 and 5 agents; prints a table.
scenario-b: deps
	@scripts/deps test
	cargo test --locked --package watari --test cluster -- --ignored --nocapture --exact scenario_b::everything_at_full_size

# A mixed load for SOAK_S seconds, in which no node's memory may grow; then what idle connections take.
SOAK_S ?= 600
soak: deps
	SOAK_S=$(SOAK_S) cargo test --locked --package watari --test cluster -- --ignored --nocapture soak

# Feeds hostile bytes and schedules to all that parses or decides, FUZZ_S seconds a target.
FUZZ_S ?= 300
fuzz: deps
	@scripts/deps fuzz
	scripts/fuzz $(FUZZ_S)

# Side by side with nginx, HAProxy and rustls; takes some minutes, wants the machine for itself, and writes docs/benchmarks.md.
bench:
	@scripts/deps bench
	cargo build --release --locked --package watari --package watari-benchmarks
	scripts/bench --out docs/benchmarks.md

# 60,000 connections in progress to nginx on this machine, for CROWD_S seconds, within 4 GiB.
CROWD_S ?= 60
crowd:
	@scripts/deps bench
	cargo build --release --locked --package watari
	CROWD_S=$(CROWD_S) scripts/crowd

# Asks the servers of others what they do that transfers can move between, moves some, and writes both into docs/origins.md.
origins: deps
	@scripts/deps test
	cargo test --locked --package watari-test-origins --test real -- --ignored --exact write_the_table
	cargo test --locked --package watari-proxy --test proxy -- --ignored --exact compatibility::write_the_table

# Random transfers between random origins, good and bad, MOVES_CASES of them by a seed that it prints.
MOVES_CASES ?= 2000
moves: deps
	MOVES_CASES=$(MOVES_CASES) MOVES_SEED=$${MOVES_SEED:-$$(date +%s)} \
		cargo test --locked --package watari-proxy --test proxy -- --nocapture moves::

# The experiments of Doi and Goto with the proxy as it is, and what they measure.
paper: deps
	cargo test --release --locked --package watari-proxy --test paper -- --nocapture --test-threads 1

# Licences, sources, duplicates, and known vulnerabilities; the last needs the network. `cargo install cargo-deny` first.
deny:
	cargo deny --locked check

deps:
	@scripts/deps

clean:
	cargo clean
