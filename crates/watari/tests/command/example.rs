//! The configurations of `examples/`, run as their README describes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{Running, WAIT_MAX, next_notification, own_loopback, watari};

#[test]
fn two_agents_run_as_the_readme_says() {
    let moves = run("two-agents", ["d1", "a1", "a2"], 2);
    assert_eq!(moves, 1);
}

#[test]
fn one_key_runs_as_the_readme_says() {
    let moves = run("one-key", ["e1", "a1"], 8);
    assert!((1..8).contains(&moves), "{moves} of 8 connections moved");
}

#[test]
fn a_dispatcher_is_ready_when_it_has_an_agent() {
    let (dir, _) = set_up("two-agents", &own_loopback());
    // The agent cannot reach its dispatcher at first, and tries again later. So the link comes up after everything
    // else.
    let _agent = Running::node(dir.path(), "a1.toml");
    let _dispatcher = Running::node(dir.path(), "d1.toml");
    let available: Vec<_> = nodes(dir.path(), "d1").iter().map(|node| node["available"].clone()).collect();
    assert_eq!(available, [json!(true), json!(false), Value::Null], "a1, a2, d1");
}

/// Runs an example. The first of its nodes is the dispatcher. Its README's commands must fetch the page `pages` times.
/// Returns the number of connections that have moved.
fn run<const N: usize>(name: &str, nodes: [&str; N], pages: usize) -> usize {
    let ip = own_loopback();
    let (dir, readme) = set_up(name, &ip);
    for node in nodes {
        watari(dir.path(), &["run", "--check", "--config", &format!("{node}.toml")]).done();
    }
    let running = nodes.map(|node| Running::start_node(dir.path(), &format!("{node}.toml")));
    for ((_, manager), node) in running.iter().zip(nodes) {
        assert_eq!(next_notification(manager), "READY=1");
        wait_until_linked(dir.path(), node);
    }
    let page = fs::read_to_string(dir.path().join("www/index.html")).unwrap();
    assert_eq!(shell(dir.path(), &block(&readme, "sh try")), page.repeat(pages));
    let metrics = shell(dir.path(), &format!("curl -sS http://{ip}:9001/metrics"));
    let moves = metrics.lines().find_map(|line| line.strip_prefix("watari_dispatcher_moves_committed_total "));
    moves.unwrap().parse().unwrap()
}

/// A copy of an example with certificates, at `ip` instead of 127.0.0.1, and its README.
pub(crate) fn set_up(name: &str, ip: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    copy(&example(name), dir.path(), ip);
    let readme = fs::read_to_string(dir.path().join("README.md")).unwrap();
    shell(dir.path(), &block(&readme, "sh setup"));
    (dir, readme)
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Copies the files of the example, with `ip` in place of 127.0.0.1, so that no other process uses its ports.
fn copy(from: &Path, to: &Path, ip: &str) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to, ip);
        } else {
            let text = fs::read_to_string(entry.path()).unwrap();
            fs::write(to, text.replace("127.0.0.1", ip)).unwrap();
        }
    }
}

/// The block of `readme` that is marked with `mark`.
pub(crate) fn block(readme: &str, mark: &str) -> String {
    let (_, after) = readme.split_once(&format!("```{mark}\n")).unwrap();
    after.split_once("```").unwrap().0.to_owned()
}

/// Runs `script` in `dir`, with `watari` on its path, and returns its output.
pub(crate) fn shell(dir: &Path, script: &str) -> String {
    let watari = Path::new(env!("CARGO_BIN_EXE_watari")).parent().unwrap().display();
    let path = format!("{watari}:{}", std::env::var("PATH").unwrap());
    let output = Command::new("sh").args(["-euc", script]).current_dir(dir).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Polls `node` until it is linked to all others and, as a dispatcher, can use all its agents.
pub(crate) fn wait_until_linked(dir: &Path, node: &str) {
    let begin = Instant::now();
    loop {
        let nodes = nodes(dir, node);
        if nodes.iter().all(|node| node["up"] == true && node["available"] != false) {
            return;
        }
        assert!(begin.elapsed() < WAIT_MAX, "{nodes:?}");
    }
}

/// The nodes in the list of `node`.
fn nodes(dir: &Path, node: &str) -> Vec<Value> {
    let nodes = watari(dir, &["ctl", "--admin", &format!("{node}.sock"), "--json", "nodes"]).done();
    serde_json::from_str(&nodes).unwrap()
}
