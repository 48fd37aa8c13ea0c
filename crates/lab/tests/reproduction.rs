//! The runs in `docs/reproduction` are what the lab promises: each experiment, in full, with a reason for what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use watari_lab::catalogue;
use watari_lab::output::report;
use watari_lab::plan::{Options, Plan};
use watari_lab::result::{RunResult, SPREAD_MAX, Verdict};

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn committed(name: &str) -> RunResult {
    let path = documents().join("reproduction").join(format!("{name}.json"));
    let json = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&json).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where the run is not that of the experiment's file.
fn differences(run: &RunResult) -> Vec<String> {
    let options = Options { is_quick: false, rounds: None, seed: run.seed, set: BTreeMap::new() };
    let plan = catalogue::find(&run.name).map(|found| Plan::new(found, options, Path::new("")));
    let plan = plan.expect("it is there").expect("it is valid");
    let mut faults = Vec::new();
    if run.digest != plan.digest() {
        faults.push(format!("{}: it has other hosts, processes, steps or templates", run.name));
    }
    if !plan.experiment().deviations.iter().all(|deviation| run.deviations.contains(deviation)) {
        faults.push(format!("{}: it has other deviations", run.name));
    }
    let rows = run.figures.iter().flat_map(|figure| &figure.rows);
    let measured: BTreeSet<_> = rows.map(|row| row.variant.as_str()).collect();
    if measured != plan.variants.iter().map(|variant| variant.key.as_str()).collect() {
        faults.push(format!("{}: it has other variants", run.name));
    }
    if !run.ratios.keys().eq(plan.ratios.iter().map(|ratio| &ratio.name)) {
        faults.push(format!("{}: it has other ratios", run.name));
    }
    let experiment = plan.experiment();
    if run.title != experiment.title || run.text != experiment.text.trim() {
        faults.push(format!("{}: it has another text", run.name));
    }
    for ratio in &plan.ratios {
        let Some(measured) = run.ratios.get(&ratio.name) else { continue };
        let required = (ratio.paper, ratio.tolerance, ratio.at_least, ratio.at_most, &ratio.source);
        if required != (measured.paper, measured.tolerance, measured.at_least, measured.at_most, &measured.source) {
            faults.push(format!("{}: {} has another value of the paper, or another limit", run.name, ratio.name));
        }
        if measured.verdict != Verdict::Impossible && measured.because != ratio.reason(measured.verdict) {
            faults.push(format!("{}: {} has another reason", run.name, ratio.name));
        }
        let spread_reasons = ["", &ratio.spread_because, &experiment.spread_because];
        if !spread_reasons.contains(&measured.spread_because.as_str()) {
            faults.push(format!("{}: {} has another reason of its spread", run.name, ratio.name));
        }
    }
    if run.plots.is_empty() != experiment.plots.is_empty() {
        faults.push(format!("{}: it lacks its plots", run.name));
    }
    for plot in &run.plots {
        if !documents().join("reproduction").join(&run.name).join(format!("{}.svg", plot.file)).exists() {
            faults.push(format!("{}: the plot {} is missing", run.name, plot.file));
        }
    }
    for row in &experiment.impossible {
        if !run.entries.iter().any(|entry| (&entry.source, &entry.why) == (&row.source, &row.why)) {
            faults.push(format!("{}: it lacks the row {}", run.name, row.source));
        }
    }
    faults
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
        faults.extend(differences(&run));
        for (name, ratio) in &run.ratios {
            if matches!(ratio.verdict, Verdict::Differs | Verdict::Exceeded) && ratio.because.is_empty() {
                faults.push(format!("{}: {name} is not as in the paper, without a reason", run.name));
            }
            if ratio.spread.is_some_and(|spread| spread > SPREAD_MAX) && ratio.spread_because.is_empty() {
                faults.push(format!("{}: {name} has a large spread without a reason", run.name));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_document_is_that_of_the_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = folder.path().join("runs");
    for experiment in catalogue::all().expect("they are valid") {
        let (name, run) = (&experiment.name, runs.join(&experiment.name));
        fs::create_dir_all(&run).expect("a folder");
        fs::copy(documents().join(format!("reproduction/{name}.json")), run.join("result.json")).expect("a result");
        for plot in committed(name).plots {
            let file = format!("{}.svg", plot.file);
            fs::copy(documents().join(format!("reproduction/{name}/{file}")), run.join(file)).expect("a plot");
        }
    }
    let document = folder.path().join("reproduction.md");
    report(&runs, &folder.path().join("page.html"), Some(&document)).expect("a report");
    let read = |path: &Path| fs::read_to_string(path).expect("a document");
    assert!(read(&document) == read(&documents().join("reproduction.md")), "run `watari lab report --markdown`");
}
