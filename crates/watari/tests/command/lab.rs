//! `watari lab`

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Ended, watari};

/// Runs an experiment in small, and returns its result. None without root, because quotas need it.
fn run(dir: &Path, name: &str, settings: &[&str]) -> Option<Value> {
    if !is_root(&format!("`watari lab run {name}`")) {
        return None;
    }
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<_> = ["lab", "run", name, "--quick", "--json", name].into_iter().chain(settings).collect();
    let Ended { status, out, error } = watari(dir, &arguments);
    assert_eq!(status, Some(0), "{error}");
    let result = fs::read(dir.join(name).join("result.json")).unwrap();
    let result: Value = serde_json::from_slice(&result).unwrap();
    let verdict = result["verdict"].as_str().unwrap();
    assert!(["reproduced", "exceeded", "differs", "impossible"].contains(&verdict), "{verdict}");
    assert!(out.ends_with(&format!("{name}: {verdict}\n")), "{out}");
    Some(result)
}

/// Says so if it is not, because quotas need root.
fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: {test} needs root for CPU quotas");
    }
    is_root
}

/// The value of a figure of a variant.
fn figure(result: &Value, name: &str, variant: &str) -> f64 {
    let figures = result["figures"].as_array().unwrap();
    let figure = figures.iter().find(|figure| figure["name"] == name).unwrap();
    let row = figure["rows"].as_array().unwrap().iter().find(|row| row["variant"] == variant);
    row.unwrap()["median"].as_f64().unwrap()
}

/// A figure that counts.
fn count(result: &Value, name: &str, variant: &str) -> i64 {
    let value = figure(result, name, variant);
    assert!(value.fract().abs() < 1e-9, "{value}");
    value as i64
}

#[test]
fn scenario_a_runs_in_small() {
    let dir = tempfile::tempdir().unwrap();
    let Some(result) = run(dir.path(), "cssl-a", &["requests=12", "connections=4"]) else { return };
    for variant in ["sf-off", "sf-on", "round-robin", "lb-ip", "lb-rr", "one"] {
        assert_eq!(count(&result, "failed requests", variant), 0, "{variant}");
        assert!(figure(&result, "requests", variant) > 0.0, "{variant}");
        assert!(figure(&result, "CPU of server A", variant) > 0.0, "{variant}");
    }
    let on_off = &result["ratios"]["requests/s, migration on / off"];
    assert_eq!(on_off["paper"], 1.21);
    assert!(on_off["ours"].as_f64().unwrap() > 0.0 && on_off["peers"].is_object(), "{on_off}");
    let delay = &result["delays"][0];
    assert_eq!(delay["set_ms"], 30.0);
    // A busy machine delays packets more, and the result says so.
    assert!(delay["measured_ms"].as_f64().unwrap() > 29.7, "{delay}");
    assert!(delay["is_exact"].is_boolean(), "{delay}");
    let files = ["figures.csv", "ratios.csv", "cpu.csv", "01-requests-per-second.svg", "01-requests-per-second.png"];
    for file in files {
        assert!(dir.path().join("cssl-a").join(file).metadata().unwrap().len() > 0, "{file}");
    }
}

#[test]
fn scenario_b_runs_in_small_and_sharing_saves_full_handshakes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(result) = run(dir.path(), "cssl-b", &["users=8", "connections=4"]) else { return };
    // Two clients with eight users each, which come three times.
    assert_eq!(count(&result, "full handshakes", "sl-on"), 16);
    assert_eq!(count(&result, "full handshakes", "tickets"), 16);
    let off = count(&result, "full handshakes", "sl-off");
    assert!((17..=48).contains(&off), "{off}");
    let out = watari(dir.path(), &["lab", "evaluate", "cssl-b", "--json", "cssl-b"]).done();
    assert!(out.ends_with(&format!("cssl-b: {}\n", result["verdict"].as_str().unwrap())), "{out}");
    let again = fs::read(dir.path().join("cssl-b/result.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&again).unwrap(), result, "the trials have all that the result needs");
    let markdown = dir.path().join("reproduction.md");
    let report = ["lab", "report", "--runs", ".", "--out", "report.html", "--markdown", markdown.to_str().unwrap()];
    assert_eq!(watari(dir.path(), &report).done(), "wrote report.html\n");
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("CSSL, Scenario B") && page.contains("<svg"), "{}", page.len());
    let document = fs::read_to_string(markdown).unwrap();
    assert!(document.contains("requests/s, migration on / off"));
    assert!(document.contains("[cssl-b.json](reproduction/cssl-b.json)"));
    let copy = fs::read(dir.path().join("reproduction/cssl-b.json")).unwrap();
    assert_eq!(copy, fs::read(dir.path().join("cssl-b/result.json")).unwrap());
}

/// All experiments of the five papers, and those beyond them.
const EXPERIMENTS: [&str; 25] = [
    "anma-1",
    "anma-2",
    "anma-3",
    "anma-4",
    "anma-cgi",
    "anma-files",
    "anma-tls",
    "cache-dynamic",
    "cache-header",
    "cache-queue",
    "churn",
    "crash",
    "cssl-a",
    "cssl-b",
    "drain",
    "enma-lab",
    "handover-compat",
    "handover-gain",
    "handover-overhead",
    "rebalance",
    "scale",
    "standby",
    "storm",
    "suites",
    "upgrade",
];

/// Two trials of a moment.
const SHORT: &str = "
name = 'short'
title = 'Short'
text = 'It ends at once.'
rounds = { full = 2, quick = 1 }
[[host]]
name = 'a'
number = 1
networks = []
[[variant]]
key = 'only'
title = 'The variant'
[[step]]
name = 'wait'
hosts = ['a']
run = 'true'
";

/// A folder with `short.toml`. None without root.
fn short() -> Option<TempDir> {
    if !is_root("`watari lab run short.toml`") {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("short.toml"), SHORT).unwrap();
    Some(dir)
}

#[test]
fn a_terminal_shows_the_remaining_time() {
    let Some(dir) = short() else { return };
    let run = format!("{} lab run short.toml", env!("CARGO_BIN_EXE_watari"));
    // Its standard streams are a pseudo-terminal.
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &run, "/dev/null"]).current_dir(dir.path()).stdin(Stdio::null());
    let output = script.env("TERM", "xterm").output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("0/2") && shown.contains("The variant, round 1"), "{shown}");
    assert!(shown.contains(" left: The variant, round 2"), "{shown}");
}

#[test]
fn a_missing_program_ends_a_run_before_its_first_trial() {
    let Some(dir) = short() else { return };
    let last = "
[[system]]
name = 'last'
[[system.process]]
name = 'p'
host = 'a'
run = '${server} -f x'
vars = { server = 'no-server' }
[[variant]]
key = 'last'
title = 'Last'
systems = ['last']
";
    let needs = "rounds = { full";
    assert!(SHORT.contains(needs));
    let short = SHORT.replace(needs, &format!("needs = ['no-helper', 'sh']\n{needs}"));
    fs::write(dir.path().join("short.toml"), format!("{short}{last}")).unwrap();
    let Ended { status, error, .. } = watari(dir.path(), &["lab", "run", "short.toml"]);
    assert_eq!(status, Some(1), "{error}");
    assert!(error.contains("this machine lacks programs that the experiment runs: no-helper, no-server;"), "{error}");
    assert!(!error.contains("round 1"), "{error}");
}

#[test]
fn a_run_is_evaluated_by_other_ratios_but_not_by_other_steps_or_templates() {
    let Some(dir) = short() else { return };
    let file = dir.path().join("short.toml");
    fs::create_dir(dir.path().join("peers")).unwrap();
    fs::write(dir.path().join("peers/server.conf"), "threads 64\n").unwrap();
    let short = SHORT.replacen("[[host]]", "[templates]\n'server.conf' = 'peers/server.conf'\n[[host]]", 1);
    fs::write(&file, &short).unwrap();
    let Ended { status, error, .. } = watari(dir.path(), &["lab", "run", "short.toml", "--quick", "--json", "run"]);
    assert_eq!(status, Some(0), "{error}");
    let evaluate = || watari(dir.path(), &["lab", "evaluate", "short.toml", "--json", "run"]);
    fs::write(&file, format!("{short}[[ratio]]\nname = 'time'\nof = 'only:time.wait'\nat-least = 0\n")).unwrap();
    assert!(evaluate().done().ends_with("short: reproduced\n"));
    fs::write(&file, short.replace("run = 'true'", "run = 'sleep 0'")).unwrap();
    let error = evaluate().refused(1);
    assert!(error.contains("the variants, processes or steps of the experiment short have changed"), "{error}");
    fs::write(&file, &short).unwrap();
    fs::write(dir.path().join("peers/server.conf"), "threads 65\n").unwrap();
    let error = evaluate().refused(1);
    assert!(error.contains("the templates of the experiment short have changed"), "{error}");
}

#[test]
fn a_changed_run_does_not_replace_the_full_one() {
    let Some(dir) = short() else { return };
    let folders = || {
        let entries = fs::read_dir(dir.path().join("lab-runs")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let run = |arguments: &[&str]| {
        let Ended { status, error, .. } = watari(dir.path(), &[&["lab", "run"], arguments].concat());
        assert_eq!(status, Some(0), "{error}");
    };
    run(&["short.toml"]);
    assert_eq!(folders(), ["short"]);
    run(&["short.toml", "--rounds", "1"]);
    assert_eq!(folders(), ["short", "short-changed"]);
    let report = ["lab", "report", "--runs", "lab-runs/short-changed", "--markdown", "changed.md"];
    watari(dir.path(), &report).done();
    let changed = fs::read_to_string(dir.path().join("changed.md")).unwrap();
    assert!(changed.contains("Changed: 1 instead of 2 rounds."), "{changed}");
    // What a run has kept can run again.
    run(&["lab-runs/short/experiment/short.toml", "--json", "again"]);
}

#[test]
fn the_list_has_the_experiments_of_all_papers() {
    let dir = tempfile::tempdir().unwrap();
    let listed: Value = serde_json::from_str(&watari(dir.path(), &["lab", "list", "--json"]).done()).unwrap();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, EXPERIMENTS);
    let table = watari(dir.path(), &["lab", "list"]).done();
    assert_eq!(table.lines().count(), names.len() + 1, "{table}");
}

#[test]
fn exported_experiments_are_files_to_change_and_run() {
    let dir = tempfile::tempdir().unwrap();
    watari(dir.path(), &["lab", "export", "mine"]).done();
    assert!(dir.path().join("mine/watari/agent.toml").exists());
    let error = watari(dir.path(), &["lab", "export", "mine"]).refused(1);
    assert!(error.contains("cannot write mine"), "{error}");
}

#[test]
fn wrong_names_files_and_settings_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = watari(dir.path(), &["lab", "run", "cssl-z"]).refused(2);
    assert!(error.contains("no experiment is named cssl-z"), "{error}");
    let error = watari(dir.path(), &["lab", "run", "absent.toml"]).refused(2);
    assert!(error.contains("cannot read absent.toml"), "{error}");
    let error = watari(dir.path(), &["lab", "run", "cssl-a", "--set", "colour=red"]).refused(2);
    assert!(error.contains("--set names the variable colour"), "{error}");
    let error = watari(dir.path(), &["lab", "evaluate", "cssl-a", "--json", "absent"]).refused(1);
    assert!(error.contains("cannot read absent/trials.json"), "{error}");
    let error = watari(dir.path(), &["lab", "run", "cssl-a", "cssl-b", "--json", "one"]).refused(2);
    assert!(error.contains("--json and --keep are for one experiment"), "{error}");
    if is_root("`watari lab run` in a folder that cannot be written") {
        let error = watari(dir.path(), &["lab", "run", "cssl-a", "--json", "/proc"]).refused(1);
        assert!(error.contains("cannot write in /proc"), "{error}");
    }
}

#[test]
fn a_run_that_fails_leaves_its_folder_as_it_was() {
    let Some(dir) = short() else { return };
    let run = || watari(dir.path(), &["lab", "run", "short.toml", "--json", "run"]);
    assert_eq!(run().status, Some(0));
    let files = || {
        let entries = fs::read_dir(dir.path().join("run")).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap()));
        files.collect::<BTreeMap<_, _>>()
    };
    let before = files();
    assert!(before.len() >= 5, "{:?}", before.keys());
    fs::write(dir.path().join("short.toml"), SHORT.replace("run = 'true'", "run = 'false'")).unwrap();
    let Ended { status, error, .. } = run();
    assert_eq!(status, Some(1), "{error}");
    assert!(error.contains("variant only, round 1: the step wait failed"), "{error}");
    assert!(files() == before, "{:?}", files().keys());
    let hidden = fs::read_dir(dir.path().join("run")).unwrap().map(|entry| entry.unwrap().file_name());
    let hidden: Vec<_> = hidden.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}

#[test]
fn a_run_that_differs_is_a_success() {
    let Some(dir) = short() else { return };
    let ratio = "[[ratio]]\nname = 'time'\nof = 'only:time.wait'\nat-least = 3600\n";
    fs::write(dir.path().join("short.toml"), format!("{SHORT}{ratio}")).unwrap();
    let Ended { status, out, error } = watari(dir.path(), &["lab", "run", "short.toml", "--json", "run"]);
    assert_eq!(status, Some(0), "{error}");
    assert!(out.ends_with("short: differs\n"), "{out}");
    let result: Value = serde_json::from_slice(&fs::read(dir.path().join("run/result.json")).unwrap()).unwrap();
    assert_eq!((&result["verdict"], &result["ratios"]["time"]["verdict"]), (&"differs".into(), &"differs".into()));
}
