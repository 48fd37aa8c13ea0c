//! Early data (TLS 1.3's 0-RTT): answered before the client's Finished, once in the whole cluster.

use std::fs;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::clients::h2::{Frame, H2, opening_with_get};
use crate::clients::hasty::Hasty;
use crate::clients::http::{Http, get_bytes, put};
use crate::clients::openssl::SClient;
use crate::clients::tls::{Taste, Tls, dial, reset};
use crate::harness::addresses::bulk_agent;
use crate::harness::ctl::drain;
use crate::harness::node::Node;
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan};

const ON: [&str; 2] = ["mode = \"owner\"\nearly_data = true", "mode = \"push\"\nearly_data = true"];

fn cluster(sessions: &'static str) -> Cluster {
    Cluster::start(&Plan { sessions, ..Plan::default() })
}

fn client(alpn: &[u8]) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(Taste::default().resuming_config());
    config.enable_early_data = true;
    config.alpn_protocols = vec![alpn.to_vec()];
    Arc::new(config)
}

/// Connects without early data, which gives the client sessions. Returns the agent that established them.
fn get_acquainted(cluster: &Cluster, client: &Arc<ClientConfig>) -> String {
    let source = cluster.clients.any();
    let mut tls = Tls::connect(dial(source, cluster.service).unwrap(), client.clone(), SITE, |_| {}).unwrap();
    if client.alpn_protocols[0] == b"h2" {
        tls.write_all(&opening_with_get("/bytes/100?1")).unwrap();
        tls.flush().unwrap();
        download_h2(&mut H2::opened(&mut tls), 100, 1);
    } else {
        Http::new(&mut tls).download(100, 1).unwrap();
    }
    let agent = cluster.connection_of(source).handshake_node;
    reset(tls.tcp());
    drop(tls);
    until("the connection is over", || cluster.connections().is_empty());
    agent
}

fn download_h2(h2: &mut H2<impl Read + Write>, len: u64, seed: u64) {
    let mut body = Vec::new();
    loop {
        match h2.next_frame() {
            Some(Frame::Data { stream: 1, bytes, is_end }) => {
                body.extend(bytes);
                if is_end {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(body == pattern(seed, 0..len));
}

fn hasty(cluster: &Cluster, source: IpAddr, client: &Arc<ClientConfig>, request: &[u8]) -> Http<Hasty> {
    let hasty = Hasty::connect(source, cluster.service, client, request);
    Http::new(hasty.expect("the client has a session for early data"))
}

/// The numbers of accepted and of refused early data.
fn decided(cluster: &Cluster) -> (i64, i64) {
    let count = |result| cluster.count_on_agents("watari_agent_early_data_total", result);
    (count("accepted"), count("refused"))
}

fn fields_request() -> Vec<u8> {
    format!("GET /headers HTTP/1.1\r\nhost: {SITE}\r\n\r\n").into_bytes()
}

#[test]
fn it_is_off_unless_asked_for() {
    let cluster = cluster("mode = \"owner\"");
    let client = client(b"http/1.1");
    get_acquainted(&cluster, &client);
    assert!(Hasty::connect(cluster.clients.any(), cluster.service, &client, b"GET").is_none());
}

#[test]
fn a_get_is_answered_before_finished_and_a_put_behind_it() {
    for sessions in ON {
        let cluster = cluster(sessions);
        let client = client(b"http/1.1");
        get_acquainted(&cluster, &client);
        // Every agent in turn, with tickets of the agent before.
        for visit in 1..=4 {
            let (source, upload) = (cluster.clients.any(), pattern(7, 0..3000));
            let requests = || cluster.count_on_agents("watari_agent_requests_total", "");
            let before = requests();
            let mut http = hasty(&cluster, source, &client, &[fields_request(), put(&upload)].concat());
            let fields = http.take_text().unwrap();
            assert!(fields.contains("early-data: 1"), "{fields}");
            until("the upload has come", || requests() == before + 2);
            assert!(http.stream.has_nothing_to_read());
            assert!(cluster.connections().iter().all(|connection| connection.version.is_none()));
            http.stream.finish();
            assert!(http.stream.is_accepted());
            http.take_receipt(&upload).unwrap();
            assert!(!http.get_text("/headers", "").unwrap().contains("early-data"));
            let kept = http.get_text("/headers", "early-data: 1\r\n").unwrap();
            assert!(kept.contains("early-data: 1"), "somebody ahead of us has said so");
            assert_eq!(cluster.connection_of(source).resumed, Some(true));
            assert_eq!(decided(&cluster), (visit, 0), "{sessions}");
            http.stream.reset();
            drop(http);
        }
        cluster.wait_until_idle();
        assert_eq!(cluster.count_on_agents("watari_agent_handshakes_failed_total", ""), 0);
    }
}

#[test]
fn a_recorded_flight_is_answered_once_in_the_whole_cluster() {
    for sessions in ON {
        let cluster = cluster(sessions);
        let client = client(b"http/1.1");
        get_acquainted(&cluster, &client);
        let mut first = hasty(&cluster, cluster.clients.any(), &client, &get_bytes(500, 3));
        first.take_download(500, 3).unwrap();
        let requests = || cluster.count_on_agents("watari_agent_requests_total", "");
        let before = requests();
        for _ in 0..2 * AGENTS.len() {
            let mut replayed = dial(cluster.clients.any(), cluster.service).unwrap();
            replayed.write_all(&first.stream.flight).unwrap();
            // The server's flight.
            replayed.read_exact(&mut [0; 100]).unwrap();
            reset(&replayed);
        }
        until("all agents have refused it", || {
            AGENTS.iter().all(|agent| cluster.node(agent).count("watari_agent_early_data_total", "refused") == 2)
        });
        assert_eq!((decided(&cluster), requests()), ((1, 6), before), "{sessions}");
        first.stream.finish();
        first.download(500, 4).unwrap();
    }
}

#[test]
fn no_other_agent_approves_for_one_that_is_gone_or_new() {
    for is_new in [false, true] {
        let cluster = cluster(ON[1]);
        let client = client(b"http/1.1");
        let issuer = get_acquainted(&cluster, &client);
        if is_new {
            cluster.begin_anew(&[&issuer], Node::kill);
        } else {
            cluster.node(&issuer).kill();
            let rest = i64::try_from(AGENTS.len()).unwrap() - 1;
            let links = |agent: &str| cluster.node(agent).count("watari_mesh_links_up", "");
            until("its links are lost", || AGENTS.iter().filter(|a| **a != issuer).all(|a| links(a) == rest));
        }
        let source = cluster.clients.any();
        let mut http = hasty(&cluster, source, &client, &get_bytes(500, 3));
        http.stream.finish();
        assert!(!http.stream.is_accepted());
        // Now it is an ordinary connection, of the same session.
        http.download(500, 4).unwrap();
        assert_eq!(cluster.connection_of(source).resumed, Some(true));
        let counted: i64 = AGENTS
            .iter()
            .filter(|agent| is_new || **agent != issuer)
            .map(|agent| cluster.node(agent).count("watari_agent_early_data_total", "refused"))
            .sum();
        assert_eq!(counted, 1);
    }
}

#[test]
fn http2_is_answered_before_finished() {
    let cluster = cluster(ON[0]);
    let client = client(b"h2");
    get_acquainted(&cluster, &client);
    let source = cluster.clients.any();
    let request = opening_with_get("/bytes/3000?5");
    let mut h2 = H2::opened(hasty(&cluster, source, &client, &request).stream);
    download_h2(&mut h2, 3000, 5);
    h2.stream().finish();
    assert!(h2.stream().is_accepted());
    h2.get(3, "/bytes/10?6");
    assert!(matches!(h2.next_frame(), Some(Frame::Data { stream: 3, bytes, .. }) if bytes == pattern(6, 0..10)));
    assert_eq!(decided(&cluster), (1, 0));
}

/// The requests arrive as early data, and the first response ends late. After that, the connection moves to the agent
/// of its data.
#[test]
fn a_connection_moves_when_its_early_requests_are_answered() {
    let cluster = cluster(ON[0]);
    let client = client(b"http/1.1");
    get_acquainted(&cluster, &client);
    let mut moved = 0;
    for source in cluster.clients.two_of_each_agent() {
        let agent = bulk_agent(source);
        let mut http = hasty(&cluster, source, &client, &get_bytes(2_000_000, 3));
        let head = http.read_head().unwrap();
        assert_eq!(head.len().unwrap(), 2_000_000);
        http.stream.finish();
        http.check_body(0..2_000_000, 2_000_000, 3).unwrap();
        until("the connection is where it belongs", || cluster.connection_of(source).node == agent);
        http.download(5000, 4).unwrap();
        moved += i32::from(cluster.connection_of(source).has_moved());
        http.stream.reset();
        drop(http);
        until("the connection is over", || cluster.connections().is_empty());
    }
    assert!(moved >= 3, "{moved} have moved");
    assert_eq!(decided(&cluster), (6, 0));
}

#[test]
fn a_drain_lets_an_early_download_go_on() {
    let cluster = cluster(ON[0]);
    let client = client(b"http/1.1");
    get_acquainted(&cluster, &client);
    let source = cluster.clients.any();
    let mut http =
        hasty(&cluster, source, &client, format!("GET /slow/300000?3 HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes());
    assert_eq!(http.read_head().unwrap().len().unwrap(), 300_000);
    http.stream.finish();
    let node = cluster.connection_of(source).node;
    let mut drained = drain(&cluster.dispatcher().admin(), &node);
    http.check_body(0..300_000, 300_000, 3).unwrap();
    assert!(drained.wait().unwrap().success());
    assert_ne!(cluster.connection_of(source).node, node);
    http.download(5000, 4).unwrap();
}

/// A client that gets a response and then sends no Finished, closes, or sends a record that it did not seal. The agent
/// keeps nothing of it.
#[test]
fn a_handshake_that_is_never_finished_leaves_nothing() {
    let cluster = cluster(ON[0]);
    let client = client(b"http/1.1");
    for agent in cluster.agents() {
        agent.reconfigure(|text| text.replace("[agent.limits]\n", "[agent.limits]\nhandshake_timeout = \"1s\"\n"));
    }
    for cause in ["timed_out", "closed_early", "undecryptable"] {
        get_acquainted(&cluster, &client);
        let mut http = hasty(&cluster, cluster.clients.any(), &client, &get_bytes(500, 3));
        http.take_download(500, 3).unwrap();
        match cause {
            "closed_early" => http.stream.shut_down(),
            "undecryptable" => http.stream.send_raw(&[&[23, 3, 3, 0, 20][..], &[7; 20]].concat()),
            _ => {}
        }
        assert!(!http.ends_cleanly(), "{cause}");
        until("it is counted", || cluster.count_on_agents("watari_agent_handshakes_failed_total", cause) == 1);
        cluster.wait_until_idle();
    }
}

#[test]
fn openssl_has_its_early_data_accepted_once() {
    check_openssl(&get_bytes(40, 3));
}

/// The agent skips rejected early data of any length (RFC 8446, section 4.2.10).
#[test]
fn openssl_has_long_early_data_rejected_and_goes_on() {
    let filler = "x".repeat(12_000);
    check_openssl(format!("GET /bytes/40?3 HTTP/1.1\r\nhost: {SITE}\r\nfiller: {filler}\r\n\r\n").as_bytes());
}

/// `early` requests 40 bytes of the pattern of seed 3.
fn check_openssl(early: &[u8]) {
    let cluster = cluster(ON[0]);
    let (session, request) = (cluster.dir().join("session.pem"), cluster.dir().join("request"));
    fs::write(&request, early).unwrap();
    let arguments = ["-tls1_3", "-ign_eof", "-alpn", "http/1.1"];
    let start = |more: &[&str]| {
        let arguments = [&arguments[..], more].concat();
        SClient::start(cluster.clients.any(), cluster.service, &cluster.site_ca(), &arguments)
    };
    let mut first = start(&["-sess_out", session.to_str().unwrap()]);
    first.send(&get_bytes(40, 1));
    first.wait_for(&pattern(1, 0..40));
    drop(first);
    for (sentence, is_answered) in [("Early data was accepted", true), ("Early data was rejected", false)] {
        let more = ["-sess_in", session.to_str().unwrap(), "-early_data", request.to_str().unwrap()];
        let mut client = start(&more);
        client.wait_for(sentence.as_bytes());
        if is_answered {
            client.wait_for(&pattern(3, 0..40));
        } else {
            client.send(&get_bytes(40, 5));
            client.wait_for(&pattern(5, 0..40));
        }
    }
    assert_eq!(decided(&cluster), (1, 1));
}
