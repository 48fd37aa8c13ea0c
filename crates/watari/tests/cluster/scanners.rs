//! testssl.sh and sslyze find that an agent with keys of both kinds resumes sessions, and find no fault.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::clients::visitors::rustls::FILE_LEN;
use crate::harness::ctl::sessions;
use crate::harness::node::Node;
use crate::harness::site::{KeyKind, SITE};
use crate::harness::wait::until;
use crate::harness::{Cluster, Content, Plan};

/// The number of resumptions that sslyze tries, in each of the two ways.
const RESUMPTIONS: u32 = 50;

/// The most checks of resumption by a scanner.
const LOOKS_MAX: usize = 10;

/// The time before new ticket keys are used, in seconds. All agents have them then (`ACTIVATION_DELAY` in
/// `agent::sessions::tickets`).
const ACTIVATION_DELAY_S: u64 = 5;

/// Findings of testssl.sh about this site, and not about Watari.
const NOT_OURS: [(&str, &str); 2] = [
    ("cert_revocation", "the test's own authority publishes no list of what it has revoked"),
    ("security_headers", "what a site says of itself in its responses is the site's"),
];

/// A finding of testssl.sh.
#[derive(Debug, Deserialize)]
struct Finding {
    id: String,
    /// The address of the server.
    ip: String,
    severity: String,
    #[serde(rename = "finding")]
    text: String,
}

impl Finding {
    /// Also a test that could not be run, but not a complaint about the test's own machine.
    fn is_grave(&self) -> bool {
        let is_of_the_server = self.ip != "/";
        is_of_the_server && ["MEDIUM", "HIGH", "CRITICAL", "WARN", "FATAL"].contains(&self.severity.as_str())
    }

    /// Findings about one of several certificates name it.
    fn is_about(&self, topic: &str) -> bool {
        self.id.split(' ').next() == Some(topic)
    }

    fn is_expected(&self) -> bool {
        NOT_OURS.iter().any(|(topic, _)| self.is_about(topic))
    }
}

/// A site for scanners: clients without a server name get a certificate, too.
fn start() -> Cluster {
    let (content, dispatcher) = (Content::Files(&[FILE_LEN]), "bulk = \"stay\"");
    let cluster = Cluster::start(&Plan { content, dispatcher, ..Plan::default() });
    for agent in cluster.agents() {
        agent.reconfigure(|text| text.replace(".key\"\n", ".key\"\ndefault = true\n"));
    }
    // Before that, a resumed session gets a ticket of newer keys, and scanners take it for a new session.
    until("the keys of tickets are those that stay", || {
        let age = |agent: &Node| sessions(&agent.admin())?["newest_seed_age_s"].as_u64();
        cluster.agents().all(|agent| age(agent).is_some_and(|age| age > ACTIVATION_DELAY_S + 1))
    });
    cluster
}

#[test]
fn testssl_finds_resumption_and_nothing_grave() {
    let cluster = start();
    let topics = ["--protocols", "--std", "--fs", "--server-preference", "--headers", "--vulnerable"];
    let mut findings = testssl(&cluster, &topics).unwrap();
    // testssl.sh closes right after a handshake, possibly before the ticket has come. Then it reports that it could not
    // find out. On a busy machine a lookup at another agent can take longer than its timeout. Then the handshake is full.
    let mut resumption = Vec::new();
    let mut looks = (0..LOOKS_MAX).filter_map(|_| testssl(&cluster, &["--server-defaults"]).ok());
    let found = looks.find(|findings| {
        let text = |topic| findings.iter().find(|finding| finding.is_about(topic)).map(|finding| finding.text.clone());
        resumption = ["sessionresumption_ticket", "sessionresumption_ID"].map(text).into();
        resumption.iter().all(|text| text.as_deref() == Some("supported"))
    });
    findings.extend(found.unwrap_or_else(|| panic!("resumption by ticket and by id: {resumption:?}")));
    let grave: Vec<_> = findings.iter().filter(|finding| finding.is_grave() && !finding.is_expected()).collect();
    assert!(grave.is_empty(), "{grave:#?}");
    for (topic, reason) in &NOT_OURS {
        assert!(
            findings.iter().any(|finding| finding.is_about(topic) && finding.is_grave()),
            "{topic} ({reason}) is gone"
        );
    }
}

/// The findings, unless some tests could not be run.
fn testssl(cluster: &Cluster, topics: &[&str]) -> Result<Vec<Finding>, String> {
    let report = tempfile::Builder::new().suffix(".json").tempfile_in(cluster.dir()).unwrap().into_temp_path();
    fs::remove_file(&report).unwrap();
    let mut command = Command::new("testssl");
    command.args(topics).args(["--warnings", "batch", "--color", "0", "--ip", &cluster.service.ip().to_string()]);
    command.arg("--add-ca").arg(cluster.site_ca()).arg("--jsonfile").arg(&report);
    run(command.arg(format!("https://{SITE}:{}/", cluster.service.port())).current_dir(cluster.dir()))?;
    Ok(serde_json::from_slice(&fs::read(&report).unwrap()).unwrap())
}

/// sslyze also compares with Mozilla's recommendations for public servers.
#[test]
fn sslyze_finds_resumption_and_what_mozilla_recommends() {
    let cluster = start();
    let resumed = || cluster.count_on_agents("watari_agent_sessions_resumed_total", "");
    let mut scans = (1..=LOOKS_MAX).map(|scans| {
        let found = sslyze(&cluster);
        let all = i64::try_from(scans).unwrap() * i64::from(2 * RESUMPTIONS);
        until("agents have counted all", || resumed() >= all);
        assert_eq!(resumed(), all, "by ids and by tickets");
        assert_eq!(found.session_resumption.result.session_id_successful_resumptions_count, RESUMPTIONS);
        found
    });
    // Besides the ticket, sslyze compares the second in which a session began. If it differs, it takes the session for
    // another one.
    let by_ticket = |found: &Scans| found.session_resumption.result.tls_ticket_successful_resumptions_count;
    let found = scans.find(|found| by_ticket(found) == RESUMPTIONS).expect("it takes sessions for others");
    assert!(!found.tls_1_3_early_data.result.supports_early_data);
    assert_eq!(found.certificate_info.result.certificate_deployments.len(), KeyKind::BOTH.len());
}

/// The results of sslyze.
fn sslyze(cluster: &Cluster) -> Scans {
    let report = cluster.dir().join("sslyze.json");
    let mut command = Command::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join("sslyze/bin/sslyze"));
    command.args(["--mozilla_config", "intermediate", "--certinfo", "--resum", "--early_data", "--reneg", "--ems"]);
    command.args(["--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3", "--elliptic_curves"]);
    command.args(["--heartbleed", "--openssl_ccs", "--robot", "--compression", "--fallback"]);
    command.args(["--resum_attempts", &RESUMPTIONS.to_string()]);
    command.arg("--certinfo_ca_file").arg(cluster.site_ca());
    command.arg(format!("--json_out={}", report.display()));
    run(command.arg(format!("{SITE}:{}{{{}}}", cluster.service.port(), cluster.service.ip()))).unwrap();
    let report: Report = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let [server] = <[Server; 1]>::try_from(report.server_scan_results).ok().expect("one server was scanned");
    server.scan_result
}

/// The fields of sslyze's report that tests assert.
#[derive(Deserialize)]
struct Report {
    server_scan_results: Vec<Server>,
}

#[derive(Deserialize)]
struct Server {
    scan_result: Scans,
}

#[derive(Deserialize)]
struct Scans {
    session_resumption: Scan<Resumption>,
    tls_1_3_early_data: Scan<EarlyData>,
    certificate_info: Scan<CertificateInfo>,
}

#[derive(Deserialize)]
struct Scan<T> {
    result: T,
}

#[derive(Deserialize)]
struct Resumption {
    session_id_successful_resumptions_count: u32,
    tls_ticket_successful_resumptions_count: u32,
}

#[derive(Deserialize)]
struct EarlyData {
    supports_early_data: bool,
}

#[derive(Deserialize)]
struct CertificateInfo {
    certificate_deployments: Vec<IgnoredAny>,
}

/// The output of a command that failed.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| {
        panic!("cannot run {}, which `scripts/deps test` installs: {error}", command.get_program().display());
    });
    let [said, complaints] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if output.status.success() { Ok(()) } else { Err(format!("{}: {said}{complaints}", output.status)) }
}
