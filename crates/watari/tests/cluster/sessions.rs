//! Sessions: every agent resumes a session that another established.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::ClientConfig;
use rustls::client::Tls12Resumption;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clients::http::Http;
use crate::clients::openssl::SClient;
use crate::clients::tls::{TLS12, TLS13, Taste, Tls, dial};
use crate::harness::ctl;
use crate::harness::node::{Node, WATARI};
use crate::harness::pattern::pattern;
use crate::harness::site::{KeyKind, SITE};
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan};

/// The result of a handshake: the agent that did it, and whether it resumed a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) agent: String,
    pub(crate) resumed: bool,
}

/// Connects once, and reads until tickets have come.
pub(crate) fn visit(cluster: &Cluster, client: &Arc<ClientConfig>) -> Visit {
    let source = cluster.clients.any();
    let tcp = dial(source, cluster.service).unwrap();
    let mut http = Http::new(Tls::connect(tcp, client.clone(), SITE, |_| {}).unwrap());
    http.download(100, 1).unwrap();
    let connection = cluster.connection_of(source);
    Visit { agent: connection.handshake_node, resumed: connection.resumed.unwrap() }
}

/// The dispatcher selects the agents in turn. A client with a session visits each of them, and resumes there.
pub(crate) fn is_known_everywhere(cluster: &Cluster, client: &Arc<ClientConfig>) {
    let mut visits: Vec<_> = AGENTS.iter().map(|_| visit(cluster, client)).collect();
    visits.sort_by(|a, b| a.agent.cmp(&b.agent));
    assert_eq!(visits, AGENTS.map(|agent| Visit { agent: agent.to_owned(), resumed: true }));
}

#[test]
fn every_agent_resumes_what_any_has_established() {
    let cluster = Cluster::start(&Plan::default());
    for taste in Taste::all() {
        let client = taste.resuming_config();
        assert!(!visit(&cluster, &client).resumed);
        for _ in 0..3 {
            is_known_everywhere(&cluster, &client);
        }
    }
    let handshakes = |resumed| cluster.count_on_agents("watari_agent_handshakes_total", resumed);
    assert_eq!((handshakes("true"), handshakes("false")), (4 * 9, 4));
    assert_eq!(cluster.count_on_agents("watari_agent_sessions_missed_total", ""), 0);
    // In TLS 1.3 a client uses the ticket of its last visit, at another agent. In TLS 1.2 it keeps the first ticket.
    assert_eq!(cluster.count_on_agents("watari_agent_sessions_resumed_total", "elsewhere"), 2 * 9 + 2 * 6);
    let sessions = AGENTS.map(|agent| ctl::sessions(&cluster.node(agent).admin()).unwrap());
    let sum =
        |pointer: &str| sessions.iter().map(|shown| shown.pointer(pointer).unwrap().as_u64().unwrap()).sum::<u64>();
    for (version, here, elsewhere) in [("0", 6, 12), ("1", 0, 18)] {
        assert_eq!(sum(&format!("/handshakes/{version}/full")), 2);
        assert_eq!(sum(&format!("/handshakes/{version}/resumed/here")), here);
        assert_eq!(sum(&format!("/handshakes/{version}/resumed/elsewhere")), elsewhere);
        assert_eq!(sum(&format!("/handshakes/{version}/missed/no_key")), 0);
    }
    assert!(sessions.iter().all(|shown| shown["mode"] == "tickets" && shown["seeds"] == sessions[0]["seeds"]));
}

/// Clients of TLS 1.2 that take no tickets, so that agents keep their sessions.
fn clients_of_ids() -> impl Iterator<Item = Arc<ClientConfig>> {
    let tastes = KeyKind::BOTH.map(|key| Taste { version: &TLS12, key, identity: None });
    tastes.into_iter().map(|taste| {
        let mut client = Arc::unwrap_or_clone(taste.resuming_config());
        client.resumption = client.resumption.tls12_resumption(Tls12Resumption::SessionIdOnly);
        Arc::new(client)
    })
}

#[test]
fn sessions_that_are_kept_are_known_everywhere_in_every_mode() {
    for sessions in ["mode = \"tickets\"", "mode = \"push\"", "mode = \"owner\""] {
        let cluster = Cluster::start(&Plan { sessions, ..Plan::default() });
        let clients = clients();
        for client in &clients {
            assert!(!visit(&cluster, client).resumed);
            for _ in 0..3 {
                is_known_everywhere(&cluster, client);
            }
        }
        let missed = cluster.count_on_agents("watari_agent_sessions_missed_total", "");
        let kept: u64 = AGENTS.map(|agent| kept_by(&cluster, agent)).iter().sum();
        assert_eq!((missed, kept > 0), (0, true), "{sessions}");
    }
}

fn kept_by(cluster: &Cluster, agent: &str) -> u64 {
    ctl::sessions(&cluster.node(agent).admin()).unwrap()["kept"].as_u64().unwrap()
}

/// The restarted agent has lost its sessions, and the others have them.
#[test]
fn an_agent_that_begins_anew_asks_for_sessions_that_others_keep() {
    for sessions in ["mode = \"push\"", "mode = \"owner\""] {
        let cluster = Cluster::start(&Plan { sessions, ..Plan::default() });
        let clients = clients();
        for client in &clients {
            visit(&cluster, client);
        }
        cluster.begin_anew(&["a2"], Node::kill);
        for client in &clients {
            is_known_everywhere(&cluster, client);
        }
        assert!(cluster.node("a2").count("watari_agent_sessions_resumed_total", "pulled") > 0, "{sessions}");
    }
}

/// The paper's "migration off".
#[test]
fn private_sessions_are_known_to_their_agent_alone() {
    let cluster = Cluster::start(&Plan { sessions: "mode = \"private\"", ..Plan::default() });
    for taste in Taste::all() {
        let client = taste.resuming_config();
        let first = visit(&cluster, &client);
        // An agent that does not have the session gives another, which the next agent does not have either.
        for _ in 0..2 {
            assert!(!visit(&cluster, &client).resumed);
        }
        assert!(!first.resumed);
    }
    assert_eq!(cluster.count_on_agents("watari_agent_sessions_missed_total", "no_key"), 4 * 2);
}

#[test]
fn a_rotation_of_keys_loses_no_session() {
    let cluster = Cluster::start(&Plan::default());
    let clients: Vec<_> = Taste::all().iter().map(Taste::resuming_config).collect();
    for client in &clients {
        visit(&cluster, client);
    }
    let learned = |agent: &str| cluster.node(agent).count("watari_agent_ticket_seeds_learned_total", "");
    let before = AGENTS.map(learned);
    // At two agents at once.
    ctl::rotate_keys(&cluster.node("a1").admin());
    ctl::rotate_keys(&cluster.node("a2").admin());
    for client in &clients {
        is_known_everywhere(&cluster, client);
    }
    until("all agents have the new keys", || {
        let news: Vec<_> = AGENTS.iter().zip(before).map(|(agent, before)| learned(agent) - before).collect();
        news == [1, 1, 2]
    });
    for client in &clients {
        is_known_everywhere(&cluster, client);
    }
}

#[test]
fn agents_that_begin_anew_know_the_sessions_of_before() {
    let cluster = Cluster::start(&Plan::default());
    let clients: Vec<_> = Taste::all().iter().map(Taste::resuming_config).collect();
    for client in &clients {
        visit(&cluster, client);
    }
    stay_known_as_agents_begin_anew(&cluster, &clients);
}

/// Each agent dies and restarts in turn. Clients resume at every agent after each restart.
pub(crate) fn stay_known_as_agents_begin_anew(cluster: &Cluster, clients: &[Arc<ClientConfig>]) {
    for agent in AGENTS {
        cluster.begin_anew(&[agent], Node::kill);
        for client in clients {
            is_known_everywhere(cluster, client);
        }
    }
}

#[test]
fn clocks_that_are_five_minutes_off_do_no_harm() {
    for sessions in ["mode = \"tickets\"", "mode = \"push\"", "mode = \"owner\""] {
        let clocks = &[("a1", "+5m"), ("a3", "-5m")];
        let cluster = Cluster::start(&Plan { clocks, sessions, ..Plan::default() });
        let time_of = |agent: &str| {
            let log = cluster.node(agent).log();
            OffsetDateTime::parse(log.split_whitespace().next().unwrap(), &Rfc3339).unwrap()
        };
        assert!((9..=11).contains(&(time_of("a1") - time_of("a3")).whole_minutes()), "the clocks are apart");
        let clients = clients();
        for round in 0..2 {
            for client in &clients {
                assert_eq!(visit(&cluster, client).resumed, round > 0);
                is_known_everywhere(&cluster, client);
            }
            if sessions.contains("tickets") {
                let seeds =
                    |agent: &str| ctl::sessions(&cluster.node(agent).admin()).unwrap()["seeds"].as_u64().unwrap();
                let all_have = |count: u64| AGENTS.iter().all(|agent| seeds(agent) == count);
                // More than one agent may have made a seed.
                until("all agents have the same keys", || all_have(seeds("a1")));
                let before = seeds("a1");
                // By a clock that is behind, and by one that is ahead: the second seed is the newer one.
                ctl::rotate_keys(&cluster.node("a3").admin());
                ctl::rotate_keys(&cluster.node("a1").admin());
                until("all agents have the new keys", || seeds("a1") >= before + 2 && all_have(seeds("a1")));
            }
        }
        assert_eq!(cluster.count_on_agents("watari_agent_sessions_missed_total", ""), 0, "{sessions}");
    }
}

/// A power failure: no agent is left that has the keys, or has a session in memory.
#[test]
fn agents_that_all_end_at_once_know_the_sessions_of_before_by_files() {
    for sessions in WITH_FILES {
        let cluster = Cluster::start(&Plan { sessions, ..Plan::default() });
        let clients = clients();
        for client in &clients {
            visit(&cluster, client);
        }
        wait_until_filed(&cluster);
        cluster.begin_anew(&AGENTS, Node::kill);
        for client in &clients {
            is_known_everywhere(&cluster, client);
        }
        assert_eq!(cluster.count_on_agents("watari_agent_sessions_missed_total", ""), 0, "{sessions}");
    }
}

#[test]
fn agents_that_end_one_by_one_know_the_sessions_of_before_by_files() {
    for sessions in WITH_FILES {
        let cluster = Cluster::start(&Plan { sessions, ..Plan::default() });
        let mut all = Vec::new();
        for (round, agent) in AGENTS.iter().chain(&AGENTS).enumerate() {
            let new = clients();
            for client in &new {
                visit(&cluster, client);
            }
            all.extend(new);
            wait_until_filed(&cluster);
            cluster.begin_anew(&[agent], if round < AGENTS.len() { Node::kill } else { Node::terminate });
        }
        for client in &all {
            is_known_everywhere(&cluster, client);
        }
        assert_eq!(cluster.count_on_agents("watari_agent_sessions_missed_total", ""), 0, "{sessions}");
    }
}

const WITH_FILES: [&str; 3] = [
    "keys_file = \"NAME.keys\"\ndatabase = \"NAME.redb\"",
    "mode = \"push\"\nkeys_file = \"NAME.keys\"\ndatabase = \"NAME.redb\"",
    "mode = \"owner\"\nkeys_file = \"NAME.keys\"\ndatabase = \"NAME.redb\"",
];

/// Of every kind.
pub(crate) fn clients() -> Vec<Arc<ClientConfig>> {
    Taste::all().iter().map(Taste::resuming_config).chain(clients_of_ids()).collect()
}

/// Waits until all files have the keys that all agents have, and each agent's file has the sessions of its memory.
fn wait_until_filed(cluster: &Cluster) {
    let keys_of = |agent: &str| fs::read(cluster.dir().join(agent).with_extension("keys")).unwrap_or_default();
    // An agent that has just begun has a file without a key.
    until("all agents have written the same keys", || {
        keys_of("a1").len() > KEY_LEN && AGENTS.iter().all(|agent| keys_of(agent) == keys_of("a1"))
    });
    until("what is in memory is in the file", || {
        cluster.agents().all(|agent| {
            let shown = ctl::sessions(&agent.admin()).unwrap();
            shown["stored"]["sessions"].as_u64() >= shown["kept"].as_u64() && shown["stored"]["dropped"] == 0
        })
    });
}

/// The length of the secret in bytes. A file with a key is longer.
const KEY_LEN: usize = 32;

/// A visit of OpenSSL, which keeps sessions in files. Returns whether it resumed one.
fn visit_by_openssl(cluster: &Cluster, arguments: &[&str]) -> bool {
    let source = cluster.clients.any();
    let arguments = [&["-quiet", "-ign_eof"], arguments].concat();
    let mut client = SClient::start(source, cluster.service, &cluster.site_ca(), &arguments);
    client.send(format!("GET /bytes/5?1 HTTP/1.1\r\nHost: {SITE}\r\n\r\n").as_bytes());
    client.wait_for(&pattern(1, 0..5));
    cluster.connection_of(source).resumed.unwrap()
}

#[test]
fn a_session_for_one_use_is_resumed_once_in_the_whole_cluster() {
    for sessions in ["mode = \"push\"\nsingle_use = true", "mode = \"owner\"\nsingle_use = true"] {
        let cluster = Cluster::start(&Plan { sessions, ..Plan::default() });
        is_resumed_once(&cluster, "spent");
        // In TLS 1.3 every handshake gives new tickets.
        let client = Taste { version: &TLS13, key: KeyKind::BOTH[0], identity: None }.resuming_config();
        assert!(!visit(&cluster, &client).resumed);
        is_known_everywhere(&cluster, &client);
    }
}

/// Offers the same session repeatedly to several agents. Only the first resumes it. The others count the cause `miss`.
pub(crate) fn is_resumed_once(cluster: &Cluster, miss: &str) {
    let file = cluster.dir().join("session.pem");
    let path = file.to_str().unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let missed = || cluster.count_on_agents("watari_agent_sessions_missed_total", miss);
        let before = missed();
        assert!(!visit_by_openssl(cluster, &[version, "-sess_out", path]));
        let visits = [(); 5].map(|()| visit_by_openssl(cluster, &[version, "-sess_in", path]));
        assert_eq!((visits, missed()), ([true, false, false, false, false], before + 4), "{version}");
    }
}

/// Only the agent that established a session has the state of its use.
#[test]
fn a_session_for_one_use_is_not_resumed_when_its_agent_is_gone() {
    let cluster = Cluster::start(&Plan { sessions: "mode = \"push\"\nsingle_use = true", ..Plan::default() });
    let client = Taste::all()[0].resuming_config();
    let first = visit(&cluster, &client).agent;
    cluster.begin_anew(&[&first], Node::kill);
    assert!(!visit(&cluster, &client).resumed, "its process began anew");
    let missed = |cause| cluster.count_on_agents("watari_agent_sessions_missed_total", cause);
    assert_eq!((missed("spent"), missed("unknown")), (1, 0));
}

/// A byte of the ticket is changed at its beginning (the key's name), in its middle, or at its end. The agent serves
/// the client after a full handshake.
#[test]
fn a_forged_ticket_costs_a_full_handshake_and_is_counted() {
    let cluster = Cluster::start(&Plan::default());
    let file = cluster.dir().join("session.pem");
    let path = file.to_str().unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(!visit_by_openssl(&cluster, &[version, "-sess_out", path]));
        let whole = fs::read_to_string(&file).unwrap();
        assert!(visit_by_openssl(&cluster, &[version, "-sess_in", path]));
        for (at, miss) in [(3, "unreachable"), (50, "forged"), (usize::MAX, "forged")] {
            fs::write(&file, forged(&whole, at)).unwrap();
            let missed = || cluster.count_on_agents("watari_agent_sessions_missed_total", miss);
            let before = missed();
            assert!(!visit_by_openssl(&cluster, &[version, "-sess_in", path]), "{version}, byte {at}");
            assert_eq!(missed(), before + 1);
        }
    }
}

/// The session with another byte in its ticket: field 10 (explicit) of OpenSSL's `SSL_SESSION`, an OCTET STRING.
fn forged(pem: &str, at: usize) -> String {
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    let mut der = BASE64_STANDARD.decode(lines.collect::<String>()).unwrap();
    // A length of one byte, or of two, of which the first is 0x81 (X.690, section 8.1.3).
    let ticket = (0..der.len()).find_map(|start| {
        let (len, outer) = length(der[start..].strip_prefix(&[0xaa])?)?;
        let (inner, content) = length(outer.strip_prefix(&[0x04])?)?;
        (len == outer.len() - content.len() + inner).then(|| (der.len() - content.len(), inner))
    });
    let (start, len) = ticket.expect("the session has a ticket");
    der[start + at.min(len - 1)] ^= 1;
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    format!("-----BEGIN SSL SESSION PARAMETERS-----\n{}\n-----END SSL SESSION PARAMETERS-----\n", lines.join("\n"))
}

/// The value of a length field, and the bytes after it.
fn length(der: &[u8]) -> Option<(usize, &[u8])> {
    match der {
        [0x81, len, rest @ ..] | [len @ 0..=0x7f, rest @ ..] => Some((usize::from(*len), rest)),
        _ => None,
    }
}

#[test]
fn only_agents_have_keys() {
    let cluster = Cluster::start(&Plan::default());
    let admin = cluster.dispatcher().admin();
    let output = Command::new(WATARI).arg("ctl").arg("--admin").arg(admin).args(["keys", "rotate"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr).trim(),
        "watari: the node refused: d1 is not an agent: only agents resume sessions"
    );
}
