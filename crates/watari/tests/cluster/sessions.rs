//! Sessions: whichever agent established one, every other resumes it.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::ClientConfig;
use rustls::client::Tls12Resumption;

use crate::clients::http::Http;
use crate::clients::openssl::SClient;
use crate::clients::tls::{TLS12, Taste, Tls, dial};
use crate::harness::ctl;
use crate::harness::node::WATARI;
use crate::harness::pattern::pattern;
use crate::harness::site::{KeyKind, SITE};
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan};

/// How a handshake went: where it was done, and whether it resumed a session.
#[derive(Debug, PartialEq, Eq)]
struct Visit {
    agent: String,
    resumed: bool,
}

/// Connects once, and reads until tickets have come.
fn visit(cluster: &Cluster, client: &Arc<ClientConfig>) -> Visit {
    let source = cluster.clients.any();
    let tcp = dial(source, cluster.service).unwrap();
    let mut http = Http::new(Tls::connect(tcp, client.clone(), SITE, |_| {}).unwrap());
    http.download(100, 1).unwrap();
    let connection = cluster.connection_of(source);
    Visit { agent: connection.handshake_node, resumed: connection.resumed.unwrap() }
}

/// The agents go round; a client that has a session visits each of them, and is known there.
fn is_known_everywhere(cluster: &Cluster, client: &Arc<ClientConfig>) {
    let mut visits: Vec<_> = AGENTS.iter().map(|_| visit(cluster, client)).collect();
    visits.sort_by(|a, b| a.agent.cmp(&b.agent));
    assert_eq!(visits, AGENTS.map(|agent| Visit { agent: agent.to_owned(), resumed: true }));
}

fn rotate(cluster: &Cluster, agent: &str) {
    let admin = cluster.node(agent).admin();
    let output = Command::new(WATARI).arg("ctl").arg("--admin").arg(admin).args(["keys", "rotate"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
    // The ticket is always that of the last visit, and that was elsewhere.
    assert_eq!(cluster.count_on_agents("watari_agent_sessions_resumed_total", "elsewhere"), 4 * 9);
    let sessions = AGENTS.map(|agent| ctl::sessions(&cluster.node(agent).admin()).unwrap());
    let sum =
        |pointer: &str| sessions.iter().map(|shown| shown.pointer(pointer).unwrap().as_u64().unwrap()).sum::<u64>();
    for version in ["0", "1"] {
        assert_eq!(sum(&format!("/handshakes/{version}/full")), 2);
        assert_eq!(sum(&format!("/handshakes/{version}/resumed/elsewhere")), 18);
        assert_eq!(sum(&format!("/handshakes/{version}/missed/no_key")), 0);
    }
    assert!(sessions.iter().all(|shown| shown["mode"] == "tickets" && shown["seeds"] == sessions[0]["seeds"]));
}

/// Clients of TLS 1.2 that take no tickets: agents keep their sessions.
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
        let clients = Taste::all().iter().map(Taste::resuming_config).chain(clients_of_ids()).collect::<Vec<_>>();
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

/// It has lost what it kept; the others have it.
#[test]
fn an_agent_that_begins_anew_asks_for_sessions_that_others_keep() {
    for sessions in ["mode = \"push\"", "mode = \"owner\""] {
        let cluster = Cluster::start(&Plan { sessions, ..Plan::default() });
        let clients: Vec<_> = Taste::all().iter().map(Taste::resuming_config).chain(clients_of_ids()).collect();
        for client in &clients {
            visit(&cluster, client);
        }
        cluster.node("a2").kill();
        cluster.node("a2").start();
        cluster.wait_until_whole();
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
        // Whoever does not know the session gives another, which the next does not know either.
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
    rotate(&cluster, "a1");
    rotate(&cluster, "a2");
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
    for agent in AGENTS {
        cluster.node(agent).kill();
        cluster.node(agent).start();
        cluster.wait_until_whole();
        for client in &clients {
            is_known_everywhere(&cluster, client);
        }
    }
}

/// OpenSSL keeps a session in a file; a byte of the ticket in it is changed, at its beginning (whose key?), in its middle, at its
/// end. The client is served, after a full handshake.
#[test]
fn a_forged_ticket_costs_a_full_handshake_and_is_counted() {
    let cluster = Cluster::start(&Plan::default());
    let ca = cluster.site_ca();
    let file = cluster.dir().join("session.pem");
    let path = file.to_str().unwrap();
    let visit = |arguments: &[&str]| {
        let source = cluster.clients.any();
        let mut client = SClient::start(source, cluster.service, &ca, &[&["-quiet", "-ign_eof"], arguments].concat());
        client.say(format!("GET /bytes/5?1 HTTP/1.1\r\nHost: {SITE}\r\n\r\n").as_bytes());
        client.wait_for(&pattern(1, 0..5));
        cluster.connection_of(source).resumed
    };
    for version in ["-tls1_2", "-tls1_3"] {
        assert_eq!(visit(&[version, "-sess_out", path]), Some(false));
        let whole = fs::read_to_string(&file).unwrap();
        assert_eq!(visit(&[version, "-sess_in", path]), Some(true));
        for (at, miss) in [(3, "unreachable"), (50, "forged"), (usize::MAX, "forged")] {
            fs::write(&file, forged(&whole, at)).unwrap();
            let missed = || cluster.count_on_agents("watari_agent_sessions_missed_total", miss);
            let before = missed();
            assert_eq!(visit(&[version, "-sess_in", path]), Some(false), "{version}, byte {at}");
            assert_eq!(missed(), before + 1);
        }
    }
}

/// The session with another byte in its ticket: field 10 (explicit) of OpenSSL's `SSL_SESSION`, an OCTET STRING.
fn forged(pem: &str, at: usize) -> String {
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    let mut der = BASE64_STANDARD.decode(lines.collect::<String>()).unwrap();
    let is_ticket = |window: &[u8]| window[0] == 0xaa && window[1] == 0x81 && window[3] == 0x04;
    let start = der.windows(7).position(is_ticket).expect("the session has a ticket");
    let len = usize::from(der[start + 5]);
    der[start + 6 + at.min(len - 1)] ^= 1;
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    format!("-----BEGIN SSL SESSION PARAMETERS-----\n{}\n-----END SSL SESSION PARAMETERS-----\n", lines.join("\n"))
}

#[test]
fn only_agents_have_keys() {
    let cluster = Cluster::start(&Plan::default());
    let admin = cluster.dispatcher().admin();
    let output = Command::new(WATARI).arg("ctl").arg("--admin").arg(admin).args(["keys", "rotate"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr).trim(),
        "watari: the node refused: d1 is no agent, and only those resume sessions"
    );
}
