#![allow(clippy::unwrap_used)]

use super::*;
use crate::output::test_samples::{scenario_a, scenario_b};

fn write(folder: &Path, run: &str, result: &RunResult) {
    fs::create_dir_all(folder.join(run)).unwrap();
    fs::write(folder.join(run).join("result.json"), serde_json::to_vec(result).unwrap()).unwrap();
}

fn run(name: &str, quick: bool, started: &str) -> RunResult {
    RunResult { name: name.to_owned(), quick, started: started.to_owned(), ..scenario_b() }
}

#[test]
fn the_latest_full_run_of_an_experiment_without_changes_counts() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "1", &run("a", false, "2026-11-01T00:00:00Z"));
    write(folder.path(), "2", &run("a", false, "2026-11-03T00:00:00Z"));
    write(folder.path(), "3", &run("a", true, "2026-11-04T00:00:00Z"));
    write(folder.path(), "4", &run("b", true, "2026-11-02T00:00:00Z"));
    write(folder.path(), "5", &run("b", true, "2026-11-01T00:00:00Z"));
    let changed = RunResult { changes: vec!["key = rsa:2048".to_owned()], ..run("b", false, "2026-11-05T00:00:00Z") };
    write(folder.path(), "6", &changed);
    let runs = Runs::read(folder.path()).unwrap().runs;
    let found: Vec<_> = runs.iter().map(|run| (run.result.name.as_str(), &run.result.started[8..10])).collect();
    assert_eq!(found, [("a", "03"), ("b", "02")]);
}

#[test]
fn papers_come_in_their_order_and_our_own_experiments_last() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, paper: Option<&str>| RunResult { paper: paper.map(str::to_owned), ..run(name, false, "") };
    write(folder.path(), "1", &of("a", None));
    write(folder.path(), "2", &of("b", Some("anma-enma")));
    write(folder.path(), "3", &of("c", Some("cssl")));
    write(folder.path(), "4", &of("d", Some("another")));
    let names: Vec<_> = Runs::read(folder.path()).unwrap().runs.into_iter().map(|run| run.result.name).collect();
    assert_eq!(names, ["c", "b", "d", "a"]);
}

#[test]
fn the_folder_of_a_single_run_is_one_of_runs() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), ".", &scenario_a());
    assert_eq!(Runs::read(folder.path()).unwrap().runs.len(), 1);
}

#[test]
fn broken_and_foreign_results_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "good", &scenario_a());
    for (run, json) in [("broken", "{"), ("foreign", r#"{"name": 1}"#), ("binary", "\u{0}\u{1}")] {
        fs::create_dir(folder.path().join(run)).unwrap();
        fs::write(folder.path().join(run).join("result.json"), json).unwrap();
    }
    fs::create_dir_all(folder.path().join("folder").join("result.json")).unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    let runs = Runs::read(folder.path()).unwrap();
    let names: Vec<_> = runs.unreadable.iter().map(Unreadable::name).collect();
    assert_eq!(names, ["binary", "broken", "folder", "foreign"]);
    assert_eq!(runs.runs.len(), 1);
}

#[test]
fn a_folder_that_is_missing_is_an_error() {
    let error = Runs::read(Path::new("/nonexistent/runs")).err().unwrap();
    assert!(error.to_string().contains("/nonexistent/runs"), "{error}");
}

#[test]
fn only_pictures_of_this_program_are_safe() {
    let good = r#"<svg xmlns="http://www.w3.org/2000/svg" width="1"><text x="1">a &lt; b</text></svg>"#;
    assert!(is_safe(good));
    let bad = [
        r"<svg ><script>alert(1)</script></svg>",
        r#"<svg onload="alert(1)"></svg>"#,
        r#"<svg xmlns:x="http://www.w3.org/1999/xlink"><rect x:href="http://a.example"/></svg>"#,
        r#"<svg style="background: url(http://a.example)"/>"#,
        r"<svg ><!-- --></svg>",
        r"<svg ><text><![CDATA[<b>]]></text></svg>",
        r"<?xml version='1.0'?><svg />",
        r"<html ></html>",
        r"<svg >",
    ];
    for svg in bad {
        assert!(!is_safe(svg), "{svg}");
    }
}

#[test]
fn pictures_are_files_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let svg = r#"<svg width="1"></svg>"#;
    fs::write(folder.path().join("outside.svg"), svg).unwrap();
    let plot = |file: &str| crate::result::PlotFile { title: file.to_owned(), file: file.to_owned() };
    let plots = vec![plot("inside"), plot("../outside"), plot("missing")];
    write(folder.path(), "run", &RunResult { plots, ..scenario_b() });
    fs::write(folder.path().join("run/inside.svg"), svg).unwrap();
    let runs = Runs::read(folder.path()).unwrap().runs;
    let found: Vec<_> = runs[0].pictures.iter().map(|picture| picture.svg.as_deref()).collect();
    assert_eq!(found, [Some(svg), None, None]);
}
