//! The program of every target. Its own name selects the target.
#![no_main]

use std::sync::LazyLock;

static RUN: LazyLock<watari_fuzz_targets::Target> =
    LazyLock::new(|| watari_fuzz_targets::target(env!("CARGO_BIN_NAME")).expect("a target for each program"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| RUN(bytes));
