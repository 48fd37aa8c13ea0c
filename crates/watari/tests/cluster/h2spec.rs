//! h2spec finds no fault in the HTTP/2 of an agent (RFC 9113, RFC 7541).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use roxmltree::{Document, Node};

use crate::harness::{Cluster, Content, Plan};

/// The least number of cases, the strict ones included.
const CASES_MIN: usize = 145;

/// The timeout of a response, in seconds. Only failures, and cases that expect silence, take so long.
const ANSWER_MAX_S: u32 = 3;

#[test]
fn it_has_nothing_against_files() {
    let (content, dispatcher) = (Content::Files(&[1024]), "bulk = \"stay\"");
    check(&Plan { content, dispatcher, agents: Some(&["a1"]), ..Plan::default() }, "/1024.bin");
}

/// The origin responds only after it has read the request. An earlier response would reach the client before an error
/// in the rest of the request.
#[test]
fn it_has_nothing_against_a_proxy() {
    check(&Plan { agents: Some(&["a1"]), ..Plan::default() }, "/read/1024?1");
}

fn check(plan: &Plan, path: &str) {
    let cluster = Cluster::start(plan);
    for agent in cluster.agents() {
        // h2spec sends no server name.
        agent.reconfigure(|text| text.replace(".key\"\n", ".key\"\ndefault = true\n"));
    }
    let report = cluster.dir().join("h2spec.xml");
    let said = run(&cluster, path, &report);
    let report = fs::read_to_string(&report).unwrap_or_else(|error| panic!("no report: {error}\n{said}"));
    let report = Document::parse(&report).unwrap();
    let cases: Vec<_> = report.descendants().filter(|node| node.has_tag_name("testcase")).collect();
    let failed: Vec<_> = cases.iter().filter(|case| !has_passed(**case)).map(name).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{said}");
    assert!(cases.len() >= CASES_MIN, "{} cases are all\n{said}", cases.len());
}

/// Runs all cases. Returns the output of h2spec.
fn run(cluster: &Cluster, path: &str, report: &Path) -> String {
    let (ip, port) = (cluster.service.ip().to_string(), cluster.service.port().to_string());
    let mut command = Command::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join("h2spec"));
    command.args(["--strict", "--tls", "--insecure", "--host", &ip, "--port", &port, "--path", path]);
    command.args(["--timeout", &ANSWER_MAX_S.to_string(), "--junit-report"]).arg(report);
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run h2spec, which `scripts/deps test` builds: {error}"));
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

/// A skipped case counts as not passed.
fn has_passed(case: Node<'_, '_>) -> bool {
    !case.children().any(|child| child.is_element())
}

fn name(case: &Node<'_, '_>) -> String {
    let part = |name| case.attribute(name).unwrap_or_default();
    format!("{}: {}", part("package"), part("classname"))
}
