//! Legs from other peers than dispatchers, and legs with replayed prefaces. The agent resets, counts and logs them with
//! the cause.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};

use watari_values::{ConnectionId, Epoch, SecretBytes};
use watari_wire::leg::{Kind, LegSigner, Preface};
use watari_wire::{AgentToDispatcher, LegKey, Message};

use crate::clients::guest::{Guest, name};
use crate::clients::http::Http;
use crate::clients::raw::listen;
use crate::clients::tls::{Taste, Tls};
use crate::harness::node::Node;
use crate::harness::wait::until;
use crate::harness::{Cluster, DISPATCHER, GUEST_DISPATCHER, Plan};

/// The agent whose leg port is attacked.
const AGENT: &str = "a1";

const REFUSED: &str = "watari_agent_legs_refused_total";

/// A cluster in which one agent is attacked, and a client that it serves.
struct Scene {
    cluster: Cluster,
    bystander: Http<Tls>,
}

impl Scene {
    fn set() -> Self {
        let cluster = Cluster::start(&Plan { tapped_legs: &[AGENT], ..Plan::default() });
        let client = cluster.clients.served_by(AGENT);
        let bystander = Http::new(Tls::to_site(client, cluster.service, &Taste::default()).unwrap());
        let mut scene = Self { cluster, bystander };
        scene.bystander.download(10_000, 1).unwrap();
        scene
    }

    fn agent(&self) -> &Node {
        self.cluster.node(AGENT)
    }

    /// Opens a leg with `bytes`, which the agent refuses.
    fn check_refused(&mut self, bytes: &[u8], cause: &str, sentence: &str) {
        let before = self.agent().count(REFUSED, cause);
        let mut leg = TcpStream::connect(self.agent().legs).unwrap();
        let from = leg.local_addr().unwrap();
        // The agent may have refused it before everything was written.
        let _ = leg.write_all(bytes);
        let _ = leg.shutdown(Shutdown::Write);
        assert!(listen(&mut leg).is_empty(), "{cause}");
        self.check_reported(cause, before, from, sentence);
        self.bystander.download(10_000, 2).unwrap();
    }

    fn check_reported(&self, cause: &str, before: i64, from: SocketAddr, sentence: &str) {
        assert_eq!(self.agent().count(REFUSED, cause), before + 1, "{cause}");
        let from = format!("from=\"{from}\"");
        until("it is logged", || {
            self.agent().log().lines().any(|line| line.contains(&from) && line.contains(sentence))
        });
    }
}

fn connection() -> ConnectionId {
    ConnectionId { boot: 0x0bad, number: 1 }
}

fn preface(kind: Kind) -> Preface {
    let epoch = if matches!(kind, Kind::New { .. }) { Epoch(0) } else { Epoch(1) };
    let [client, server] = [([192, 0, 2, 1], 1000).into(), ([192, 0, 2, 2], 443).into()];
    Preface { kind, connection: connection(), epoch, client, server }
}

fn made_up_key(id: u32) -> LegKey {
    LegKey { id, handshakes: true, key: SecretBytes::new(vec![9; 32]) }
}

#[test]
fn headers_that_are_no_preface_are_refused() {
    let mut scene = Scene::set();
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    scene.check_refused(b"GET / HTTP/1.1\r\n\r\n", "malformed", "no PROXY protocol header");
    scene.check_refused(&[&signature[..], &[0x21, 0x11, 0xff, 0xff]].concat(), "malformed", "65551 bytes or more");
    scene.check_refused(
        &[&signature[..], &[0x21, 0x11, 0, 12], &[1; 12]].concat(),
        "malformed",
        "without exactly one preface in it",
    );
    scene.check_refused(
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\n",
        "malformed",
        "without exactly one preface in it",
    );
    scene.check_refused(&signature[..7], "ended", "ended before its preface was complete");
}

#[test]
fn a_silent_leg_is_closed() {
    let scene = Scene::set();
    let before = scene.agent().count(REFUSED, "slow");
    let mut leg = TcpStream::connect(scene.agent().legs).unwrap();
    let from = leg.local_addr().unwrap();
    assert!(listen(&mut leg).is_empty());
    scene.check_reported("slow", before, from, "the preface was not complete in time");
}

#[test]
fn forged_authenticators_are_refused() {
    let mut scene = Scene::set();
    let new = preface(Kind::New { bulk: None });
    let forge = |dispatcher, id| LegSigner::new(name(dispatcher), &name(AGENT), &made_up_key(id)).sign(&new);
    scene.check_refused(&forge("d9", 1), "unknown_key", "unknown or expired");
    scene.check_refused(&forge(DISPATCHER, 9999), "unknown_key", "unknown or expired");
    // Keys count up from 1, and the dispatcher has had few.
    let live = (1..100).find(|id| {
        let before = scene.agent().count(REFUSED, "bad_authenticator");
        let mut leg = TcpStream::connect(scene.agent().legs).unwrap();
        leg.write_all(&forge(DISPATCHER, *id)).unwrap();
        assert!(listen(&mut leg).is_empty());
        scene.agent().count(REFUSED, "bad_authenticator") > before
    });
    scene.check_refused(&forge(DISPATCHER, live.unwrap()), "bad_authenticator", "has a wrong authenticator");
}

#[test]
fn a_preface_that_was_used_is_refused() {
    let mut scene = Scene::set();
    let used = scene.cluster.tap(AGENT).recorded().swap_remove(0);
    scene.check_refused(&used, "replayed", "used before");
}

/// Even a dispatcher with a leg key of its own cannot forge a decision, and cannot take a connection from another.
#[test]
fn made_up_decisions_are_refused() {
    let mut scene = Scene::set();
    let mut dispatcher = Guest::link(&scene.cluster, GUEST_DISPATCHER, scene.agent());
    let signer = LegSigner::new(name(GUEST_DISPATCHER), &name(AGENT), &next_key(&mut dispatcher));
    let commit = Kind::Commit { rx_offset: 10, tail_offset: 20 };
    let go_on = Kind::Continue { change: 1, rx_offset: 10, tx_offset: 20 };
    let cases = [
        (commit, "not_held", "this agent does not hold the connection"),
        (go_on, "not_awaited", "the connection is not at this agent"),
    ];
    for (kind, cause, sentence) in cases {
        let before = scene.agent().count(REFUSED, cause);
        let mut leg = TcpStream::connect(scene.agent().legs).unwrap();
        leg.write_all(&signer.sign(&preface(kind))).unwrap();
        assert!(listen(&mut leg).is_empty());
        assert_eq!(scene.agent().count(REFUSED, cause), before + 1);
        let id = format!("connection={}", connection());
        until("it is logged", || scene.agent().log().lines().any(|line| line.contains(&id) && line.contains(sentence)));
        scene.bystander.download(10_000, 2).unwrap();
    }
}

/// An agent accepts the latest key that it handed out, and the one before.
#[test]
fn a_preface_under_an_expired_key_is_refused() {
    let mut scene = Scene::set();
    let keys = [1, 2, 3].map(|_| next_key(&mut Guest::link(&scene.cluster, GUEST_DISPATCHER, scene.agent())));
    let commit = preface(Kind::Commit { rx_offset: 10, tail_offset: 20 });
    let signed = LegSigner::new(name(GUEST_DISPATCHER), &name(AGENT), &keys[0]).sign(&commit);
    scene.check_refused(&signed, "unknown_key", "unknown or expired");
}

fn next_key(link: &mut Guest) -> LegKey {
    match link.next_message() {
        Message::AgentToDispatcher(AgentToDispatcher::LegKey(key)) => key,
        other => panic!("an agent first hands out a key: {other:?}"),
    }
}
