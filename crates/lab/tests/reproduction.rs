//! The runs in `docs/reproduction` are what the lab promises: each experiment, in full, with a reason for what differs.

use std::fs;
use std::path::Path;

use watari_lab::catalogue;
use watari_lab::result::{RunResult, SPREAD_MAX, Verdict};

fn committed(name: &str) -> RunResult {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reproduction").join(format!("{name}.json"));
    let json = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&json).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn each_experiment_has_a_full_run_with_reasons() {
    let mut faults = Vec::new();
    for experiment in catalogue::all().expect("they are valid") {
        let run = committed(&experiment.name);
        assert_eq!(run.name, experiment.name);
        if run.quick || !run.changes.is_empty() || run.rounds != experiment.rounds.full {
            faults.push(format!("{}: it is no full run", run.name));
        }
        for (name, ratio) in &run.ratios {
            if ratio.verdict == Verdict::Differs && ratio.because.is_empty() {
                faults.push(format!("{}: {name} differs without a reason", run.name));
            }
            if ratio.spread.is_some_and(|spread| spread > SPREAD_MAX) && ratio.spread_because.is_empty() {
                faults.push(format!("{}: {name} has a large spread without a reason", run.name));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
