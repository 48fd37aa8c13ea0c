//! curl, in every manner, transfers every byte: with another agent than the one that did its handshake.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use crate::clients::curl::{Answer, Curl, Manner};
use crate::harness::addresses::bulk_agent;
use crate::harness::origin::receipt_of;
use crate::harness::pattern::pattern;
use crate::harness::{AGENTS, Cluster, Content, Plan};

const SMALL: u64 = 1;
const MIDDLE: u64 = 300_001;
const LARGE: u64 = 20_000_000;

/// The expected decisions of the dispatcher, client by client: it gives each handshake to the next agent, and the data
/// to the agent that the client's address selects. They hold for a cluster that one client after the other uses.
#[derive(Default)]
struct Expected {
    moves: i64,
    clients: usize,
    requests: BTreeMap<&'static str, i64>,
}

impl Expected {
    fn client(&mut self, source: IpAddr) {
        let handshake = AGENTS[self.clients % AGENTS.len()];
        self.clients += 1;
        self.moves += i64::from(handshake != bulk_agent(source));
        *self.requests.entry(bulk_agent(source)).or_default() += 1;
    }

    fn check(&self, cluster: &Cluster) {
        cluster.wait_until_idle();
        assert!(self.moves > 0);
        assert_eq!(cluster.dispatcher().count("watari_dispatcher_moves_committed_total", ""), self.moves);
        assert_eq!(cluster.count_on_agents("watari_agent_moved_out_total", ""), self.moves);
        assert_eq!(cluster.count_on_agents("watari_agent_moved_in_total", ""), self.moves);
        for (agent, requests) in &self.requests {
            let answered = cluster.node(agent).count("watari_agent_requests_total", "");
            assert_eq!(answered, *requests, "{agent} answers its clients, whoever did their handshakes");
        }
    }
}

/// Calls curl from a new address.
struct Caller<'a> {
    cluster: &'a Cluster,
    expected: Expected,
}

impl Caller<'_> {
    fn curl(&mut self, manner: Manner, path: &str, arguments: &[&str]) -> Answer {
        let source = self.cluster.clients.any();
        self.expected.client(source);
        let (ca, dir) = (self.cluster.site_ca(), self.cluster.dir());
        let answer = Curl { manner, source, service: self.cluster.service, ca: &ca, dir }.run(path, arguments);
        assert_eq!(answer.http, manner.http, "{manner:?}");
        answer
    }

    fn file(&mut self, manner: Manner, len: u64, arguments: &[&str]) -> Answer {
        self.curl(manner, &format!("/{len}.bin"), arguments)
    }
}

#[test]
fn curl_downloads_files_in_every_manner() {
    let plan = Plan { content: Content::Files(&[SMALL, MIDDLE, LARGE]), ..Plan::default() };
    let cluster = Cluster::start(&plan);
    let mut caller = Caller { cluster: &cluster, expected: Expected::default() };
    for manner in Manner::all() {
        for len in [SMALL, MIDDLE, LARGE] {
            let answer = caller.file(manner, len, &[]);
            assert_eq!(answer.status, 200);
            assert!(answer.body == pattern(len, 0..len), "{manner:?}: {len} bytes arrived wrong");
        }
        range(&mut caller, manner);
        head_and_not_modified(&mut caller, manner);
    }
    caller.expected.check(&cluster);
}

fn range(caller: &mut Caller<'_>, manner: Manner) {
    let answer = caller.file(manner, MIDDLE, &["--range", "1000-299999"]);
    assert_eq!(answer.status, 206);
    assert_eq!(answer.field("content-range"), Some("bytes 1000-299999/300001"));
    assert!(answer.body == pattern(MIDDLE, 1000..300_000), "{manner:?}: a range arrived wrong");
}

fn head_and_not_modified(caller: &mut Caller<'_>, manner: Manner) {
    let answer = caller.file(manner, LARGE, &["--head"]);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-length"), Some("20000000"));
    let tag = answer.field("etag").unwrap();
    let answer = caller.file(manner, LARGE, &["--header", &format!("if-none-match: {tag}")]);
    assert_eq!((answer.status, answer.body.len()), (304, 0));
}

#[test]
fn curl_uploads_in_every_manner() {
    let cluster = Cluster::start(&Plan::default());
    let mut caller = Caller { cluster: &cluster, expected: Expected::default() };
    for manner in Manner::all() {
        for len in [SMALL, MIDDLE, LARGE] {
            let body = pattern(9, 0..len);
            let file = cluster.dir().join("upload");
            fs::write(&file, &body).unwrap();
            let answer = caller.curl(manner, "/upload", &["--upload-file", file.to_str().unwrap()]);
            assert_eq!(answer.status, 200);
            assert_eq!(String::from_utf8_lossy(&answer.body), receipt_of(&body), "{manner:?}");
        }
    }
    caller.expected.check(&cluster);
}

/// curl 7 reports a stream that is reset after its response as failed, and would not show the status.
#[test]
fn curl_sees_the_answer_to_a_refused_upload() {
    let cluster = Cluster::start(&Plan { content: Content::Files(&[SMALL]), ..Plan::default() });
    let mut caller = Caller { cluster: &cluster, expected: Expected::default() };
    let file = cluster.dir().join("upload");
    fs::write(&file, pattern(9, 0..LARGE)).unwrap();
    for manner in Manner::all().into_iter().filter(|manner| manner.http == "2") {
        let answer = caller.curl(manner, "/upload", &["--header", "Expect:", "--upload-file", file.to_str().unwrap()]);
        assert_eq!(answer.status, 405, "{manner:?}");
    }
}
