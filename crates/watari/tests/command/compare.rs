//! `watari bench compare`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::tempdir;
use watari_bench_engine::ending::{Ending, EndingKind, Phase, Side};
use watari_bench_engine::sample::{Family, RequestSample};
use watari_bench_engine::tally::Tally;
use watari_bench_report::summary::{Run, Summary};

use super::support::watari;

#[test]
fn slower_is_worse_and_the_same_is_no_different() {
    let dir = tempdir().unwrap();
    write_run(dir.path(), "a.json", 10);
    write_run(dir.path(), "b.json", 20);
    let json = watari(dir.path(), &["bench", "compare", "a.json", "b.json", "--json"]).done();
    let comparison: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(comparison["files_b"], serde_json::json!(["b.json"]));
    assert_eq!(comparison["drawn"], "seconds");
    assert_eq!(verdict(&comparison, "latency_ms.p50"), "worse");
    assert_eq!(verdict(&comparison, "requests_per_s"), "worse");
    assert_eq!(verdict(&comparison, "failures"), "none");
    let text = watari(dir.path(), &["bench", "compare", "a.json", "a.json"]).done();
    assert!(text.contains("not significantly different") && !text.contains("worse\n"), "{text}");
}

#[test]
fn five_runs_a_side_are_drawn_as_runs() {
    let dir = tempdir().unwrap();
    for (run, took_ms) in [10, 11, 10, 12, 11].into_iter().enumerate() {
        write_run(dir.path(), &format!("a{run}.json"), took_ms + 10);
        write_run(dir.path(), &format!("b{run}.json"), took_ms);
    }
    let sides = ["a", "b"].map(|side| (0..5).map(|run| format!("{side}{run}.json")).collect::<Vec<_>>().join(","));
    let json = watari(dir.path(), &["bench", "compare", &sides[0], &sides[1], "--json"]).done();
    let comparison: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&comparison["drawn"], &comparison["runs_a"]), (&Value::from("runs"), &Value::from(5)));
    assert_eq!(verdict(&comparison, "latency_ms.mean"), "better");
}

#[test]
fn files_that_are_no_summaries_are_refused() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("other.json"), "{}").unwrap();
    let refused = |file: &str| watari(dir.path(), &["bench", "compare", file, file]).refused(2);
    assert_eq!(refused("none.json"), "watari: none.json cannot be read: No such file or directory (os error 2)");
    let twice = watari(dir.path(), &["bench", "compare", "a.json,b.json,a.json", "b.json"]).refused(2);
    assert_eq!(twice, "watari: a.json is given twice: each file must be another run");
    assert!(
        refused("other.json").starts_with("watari: other.json is not a summary written by `watari bench --json`: ")
    );
}

/// A run of 20 s in which each request took `took_ms`.
fn write_run(dir: &Path, name: &str, took_ms: u64) {
    let took = Duration::from_millis(took_ms);
    let mut tally = Tally::new(["page".to_owned()].into());
    for index in 0..20_000 / u32::try_from(took_ms).unwrap() {
        tally.request(&sample(took * index, took));
    }
    let summary = Summary::new(Run::default(), Duration::from_secs(20), &tally);
    fs::write(dir.join(name), serde_json::to_vec(&summary).unwrap()).unwrap();
}

fn sample(started: Duration, took: Duration) -> RequestSample {
    RequestSample {
        class: 0,
        family: Family::Ipv4,
        handshake: None,
        due: started,
        started,
        written: Some(started),
        first_byte: Some(started + took),
        ended: started + took,
        status: Some(200),
        error_status: false,
        body_bytes: 1_000,
        ending: Ending::new(EndingKind::Normal, Phase::Response, Side::Server),
    }
}

fn verdict(comparison: &Value, figure: &str) -> String {
    let figures = comparison["figures"].as_array().unwrap();
    figures.iter().find(|compared| compared["figure"] == figure).unwrap()["verdict"].as_str().unwrap().to_owned()
}
