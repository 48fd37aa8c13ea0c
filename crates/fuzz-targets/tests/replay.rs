//! Runs each fuzz target on its corpus, and on mutations of it like those of a fuzzer. A fixed seed draws the
//! mutations, so each run has the same inputs and repeats a failure. `FUZZ_SEED` sets another seed.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use watari_fuzz_targets::{TARGETS, Target, target};

/// Mutated inputs for each target.
const MUTANTS: usize = 20_000;
/// The longest input, in bytes: the time that a target takes grows with its input.
const INPUT_LEN_MAX: usize = 4096;

macro_rules! replayed {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

        #[test]
        fn every_target_is_replayed() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($name)),*]);
        }
    };
}

replayed! {
    cache capture_files client_hello continuation files flow_answers frame frames handoff_events handoff_schedule
    http1_client http1_response http1_server http2_server lists passed_name preface proxy record_import record_moves record_open
    reports segments tickets
}

#[test]
fn every_target_has_a_program() {
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("the manifest of the fuzz workspace");
    let programs: Vec<_> = manifest.lines().filter_map(|line| line.strip_prefix("name = \"")).skip(1).collect();
    assert_eq!(programs, TARGETS.map(|(name, _)| format!("{name}\"")));
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn replay(name: &str) {
    let run = target(name).expect("a target");
    let corpus = corpus(name);
    for (path, input) in &corpus {
        check(run, input, &path.display().to_string());
    }
    let seed = std::env::var("FUZZ_SEED").map_or(20, |seed| seed.parse().expect("FUZZ_SEED is a number"));
    let mut random = SmallRng::seed_from_u64(seed);
    for number in 0..MUTANTS {
        let input = mutant(&corpus, &mut random);
        check(run, &input, &format!("input {number} of FUZZ_SEED={seed}"));
    }
}

/// The committed inputs, in the order of their names.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = fuzz().join("corpus").join(name);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut corpus: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a directory entry").path();
            let input = fs::read(&path).expect("an input can be read");
            (path, input)
        })
        .collect();
    corpus.sort();
    assert!(!corpus.is_empty(), "{} is empty", directory.display());
    corpus
}

fn check(run: Target, input: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| run(input))).is_err() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", what.replace(['/', ' '], "-")));
        fs::write(&path, input).expect("the input is kept");
        panic!("{what} fails; it is in {}", path.display());
    }
}

/// An input of the corpus with a few changes: bytes overwritten, inserted, removed, repeated, or taken from another
/// input.
fn mutant(corpus: &[(PathBuf, Vec<u8>)], random: &mut SmallRng) -> Vec<u8> {
    let choose = |random: &mut SmallRng| &corpus.choose(random).expect("a corpus is not empty").1;
    let mut input = choose(random).clone();
    input.truncate(INPUT_LEN_MAX);
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..=input.len());
        let end = random.random_range(at..=input.len().min(at + 64));
        match random.random_range(0..6) {
            0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            1 if at < input.len() => input[at] = *[0, 1, 0x7f, 0x80, 0xff].choose(random).expect("some bytes"),
            2 => drop(input.drain(at..end)),
            3 => input.splice(at..at, [random.random()]).for_each(drop),
            4 => {
                let repeated = input[at..end].to_vec();
                input.splice(at..at, repeated).for_each(drop);
            }
            _ => {
                let other = choose(random);
                let from = random.random_range(0..=other.len());
                let to = random.random_range(from..=other.len().min(from + 64));
                input.splice(at..end, other[from..to].iter().copied()).for_each(drop);
            }
        }
    }
    input.truncate(INPUT_LEN_MAX);
    input
}
