//! Peers on the mesh that are not members, or that send messages that their role does not allow.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use watari_pki::Authority;
use watari_values::{AbortReason, ConnectionId, Epoch, Role, SecretBytes, TlsInfo};
use watari_wire::frame::{FRAME_LEN_MAX, Frame};
use watari_wire::{
    Aborted, AgentToAgent, AgentToDispatcher, Cancel, Decided, DispatcherToAgent, Final, Freeze, Held, Hello, LegKey,
    LinkMessage, Message, Propose, Refused, Ship,
};

use crate::clients::guest::{Guest, identity, name};
use crate::clients::http::Http;
use crate::clients::tls::{TLS13, Taste, Tls};
use crate::harness::ctl;
use crate::harness::node::Node;
use crate::harness::wait::until;
use crate::harness::{Cluster, GUEST_AGENT, GUEST_DISPATCHER, Plan};

/// The agent that is attacked.
const AGENT: &str = "a1";

/// A cluster, and a client that has moved to the attacked agent.
struct Scene {
    cluster: Cluster,
    bystander: Http<Tls>,
    connection: ConnectionId,
}

impl Scene {
    fn set() -> Self {
        let cluster = Cluster::start(&Plan::default());
        // The attacked agent does the first handshake, another agent the second.
        let [_, (id, bystander)] = [(); 2].map(|()| {
            let client = cluster.clients.served_by(AGENT);
            let mut bystander = Http::new(Tls::to_site(client, cluster.service, &Taste::default()).unwrap());
            bystander.download(10_000, 1).unwrap();
            (cluster.connection_of(client), bystander)
        });
        assert!(id.has_moved());
        let (boot, number) = id.id.split_once('-').unwrap();
        let connection = ConnectionId { boot: u64::from_str_radix(boot, 16).unwrap(), number: number.parse().unwrap() };
        Self { cluster, bystander, connection }
    }

    fn agent(&self) -> &Node {
        self.cluster.node(AGENT)
    }

    fn check_undisturbed(&mut self) {
        self.bystander.download(100_000, 2).unwrap();
        self.bystander.upload(&[5; 10_000]).unwrap();
    }
}

fn check_logged(node: &Node, words: &[&str]) {
    until("it is logged", || node.log().lines().any(|line| words.iter().all(|word| line.contains(word))));
}

/// All reasons for which a node refuses a peer before its first message.
#[test]
fn nodes_of_another_authority_are_refused() {
    let mut scene = Scene::set();
    let foreign = scene.cluster.dir().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    Authority::create(&foreign, "foreign").unwrap().issue(&name(GUEST_AGENT), &[Role::Agent], 1).unwrap();
    for (config, sentence) in
        [(config(&scene.cluster, Some(&foreign)), "UnknownIssuer"), (config(&scene.cluster, None), "no certificate")]
    {
        let refused = || scene.agent().count("watari_mesh_connections_refused_total", "untrusted_certificate");
        let before = refused();
        // In TLS 1.3 a client's handshake ends before the server has seen its certificate.
        if let Ok(mut link) = Guest::connect(config, scene.agent()) {
            link.next_frame().unwrap_err();
        }
        until("it is counted", || refused() == before + 1);
        check_logged(scene.agent(), &["connection refused", "untrusted_certificate", sentence]);
        scene.check_undisturbed();
    }
}

/// Trusts the cluster, and sends a certificate out of `shown`.
fn config(cluster: &Cluster, shown: Option<&Path>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(cluster.pki_dir().join("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some(dir) => {
            let certificate = CertificateDer::from_pem_file(dir.join(format!("{GUEST_AGENT}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(dir.join(format!("{GUEST_AGENT}.key"))).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    })
}

#[test]
fn a_node_with_a_false_name_or_role_is_refused() {
    let mut scene = Scene::set();
    let roles = BTreeSet::from([Role::Agent]);
    let honest = Hello::new(name(GUEST_AGENT), &roles, 1);
    let false_role = Hello::new(name(GUEST_AGENT), &BTreeSet::from([Role::Dispatcher]), 1);
    let false_name = Hello::new(name("a2"), &roles, 1);
    let too_new = Hello { version_min: 200, version_max: 201, ..honest };
    for (hello, reason) in [(false_role, "false_role"), (false_name, "false_name"), (too_new, "no_common_version")] {
        let config = identity(&scene.cluster, GUEST_AGENT).client_config().clone();
        let mut link = Guest::connect(config, scene.agent()).unwrap();
        link.send_link(&LinkMessage::Hello(hello));
        // The agent sends only its own hello.
        assert!(matches!(link.next_frame().unwrap(), Frame::Link(LinkMessage::Hello(_))));
        link.next_frame().unwrap_err();
        until("it is counted", || scene.agent().count("watari_mesh_connections_refused_total", reason) == 1);
        check_logged(scene.agent(), &["connection refused", reason]);
        scene.check_undisturbed();
    }
}

/// A dispatcher may hold no state of a connection, and so may not ship one. An agent may not decide.
#[test]
fn a_node_may_send_only_the_messages_of_its_role() {
    let mut scene = Scene::set();
    let (connection, epoch) = (scene.connection, Epoch(1));
    let ship = Message::from(AgentToAgent::Ship(Box::new(garbage_ship(connection, b""))));
    let decisions = [
        Message::from(DispatcherToAgent::Committed(Decided { connection, epoch })),
        Message::from(DispatcherToAgent::Aborted(Aborted { connection, epoch, reason: AbortReason::Timeout })),
        Message::from(DispatcherToAgent::Freeze(Freeze { connection, epoch, rx_offset: 0 })),
        Message::from(DispatcherToAgent::Gone(connection)),
    ];
    check_forbidden(&mut scene, GUEST_DISPATCHER, &[ship]);
    check_forbidden(&mut scene, GUEST_AGENT, &decisions);
}

fn check_forbidden(scene: &mut Scene, guest: &str, messages: &[Message]) {
    let mut link = Guest::link(&scene.cluster, guest, scene.agent());
    for message in messages {
        let dropped = || scene.agent().count("watari_mesh_messages_dropped_total", "forbidden");
        let before = dropped();
        link.send(message);
        until("it is dropped", || dropped() == before + 1);
        let peer = format!("peer={guest}");
        check_logged(scene.agent(), &["roles do not allow it", &peer, message.kind().as_str()]);
        scene.check_undisturbed();
    }
}

/// Messages of an agent about a connection that it does not serve.
#[test]
fn an_agent_cannot_affect_connections_of_others() {
    let mut scene = Scene::set();
    let (connection, reason) = (scene.connection, AbortReason::Full);
    let (rx_offset, tail_offset, digest) = (0, 0, [0; 32]);
    let mut link = Guest::link(&scene.cluster, GUEST_AGENT, scene.cluster.dispatcher());
    link.send(&Message::from(AgentToDispatcher::LegKey(LegKey {
        id: 1,
        handshakes: true,
        key: SecretBytes::new(vec![1; 32]),
    })));
    for epoch in [0, 1, 2].map(Epoch) {
        let target = name(GUEST_AGENT);
        link.send(&Message::from(AgentToDispatcher::Propose(Propose {
            connection,
            epoch,
            target,
            rx_offset,
            tail_offset,
            digest,
        })));
        link.send(&Message::from(AgentToDispatcher::Held(Held { connection, epoch, rx_offset, tail_offset, digest })));
        link.send(&Message::from(AgentToDispatcher::Refused(Refused { connection, epoch, reason })));
        link.send(&Message::from(AgentToDispatcher::Cancel(Cancel { connection, epoch, reason })));
        link.send(&Message::from(AgentToDispatcher::Final(Final { connection, epoch, tx_offset: 0 })));
    }
    // It answers the last question that needs an answer. So it has handled all messages before.
    let unknown = ConnectionId { boot: 1, number: 1 };
    link.send(&Message::from(AgentToDispatcher::Held(Held {
        connection: unknown,
        epoch: Epoch(1),
        rx_offset,
        tail_offset,
        digest,
    })));
    while link.next_message() != Message::from(DispatcherToAgent::Gone(unknown)) {}
    scene.check_undisturbed();
}

/// Another dispatcher decides about its own connections only.
#[test]
fn a_dispatcher_cannot_affect_connections_of_others() {
    let mut scene = Scene::set();
    let connection = scene.connection;
    let mut link = Guest::link(&scene.cluster, GUEST_DISPATCHER, scene.agent());
    for epoch in [0, 1, 2].map(Epoch) {
        link.send(&Message::from(DispatcherToAgent::Freeze(Freeze { connection, epoch, rx_offset: 0 })));
        link.send(&Message::from(DispatcherToAgent::Committed(Decided { connection, epoch })));
        link.send(&Message::from(DispatcherToAgent::Aborted(Aborted {
            connection,
            epoch,
            reason: AbortReason::Timeout,
        })));
    }
    link.send(&Message::from(DispatcherToAgent::Gone(connection)));
    until("it has arrived", || scene.agent().count("watari_mesh_messages_received_total", "gone") == 1);
    scene.check_undisturbed();
}

/// A newer node may send unknown messages. The receiver reports that to it, and the link stays up.
#[test]
fn unknown_versions_and_kinds_are_answered() {
    let mut scene = Scene::set();
    let mut link = Guest::link(&scene.cluster, GUEST_AGENT, scene.agent());
    for (version, kind) in [(9, 20), (1, 99)] {
        link.send_bytes(&[0, 0, 0, 5, version, kind, 1, 2, 3]);
        let unsupported = Frame::Link(LinkMessage::Unsupported { version, kind });
        while link.next_frame().unwrap() != unsupported {}
    }
    assert_eq!(scene.agent().count("watari_mesh_messages_dropped_total", "unknown"), 2);
    check_logged(scene.agent(), &["version or kind is unknown", "version=9", "kind=20"]);
    scene.check_undisturbed();
}

#[test]
fn a_frame_that_is_too_long_ends_the_link() {
    let mut scene = Scene::set();
    let mut link = Guest::link(&scene.cluster, GUEST_AGENT, scene.agent());
    let len = u32::try_from(FRAME_LEN_MAX).unwrap();
    link.send_bytes(&len.to_be_bytes());
    while link.next_frame().is_ok() {}
    until("it is counted", || scene.agent().count("watari_mesh_links_ended_total", "bad_frame") == 1);
    check_logged(scene.agent(), &["link down", GUEST_AGENT, "bad_frame"]);
    scene.check_undisturbed();
}

/// The refusal goes to the dispatcher that the ship names, which is the test here.
#[test]
fn a_ship_without_a_state_is_refused() {
    let mut scene = Scene::set();
    let mut dispatcher = Guest::link(&scene.cluster, GUEST_DISPATCHER, scene.agent());
    let mut agent = Guest::link(&scene.cluster, GUEST_AGENT, scene.agent());
    // The agent drops messages to a peer whose link is not up yet.
    until("the agent has the dispatcher's link", || {
        let has = |line: &ctl::NodeLine| line.name == GUEST_DISPATCHER && line.up == Some(true);
        ctl::nodes(&scene.agent().admin()).is_some_and(|lines| lines.iter().any(has))
    });
    for (number, state) in (1..).zip([&b""[..], b"\x01", &[0; 100], &[0xff; 4096]]) {
        let connection = ConnectionId { boot: 0x0bad, number };
        agent.send(&Message::from(AgentToAgent::Ship(Box::new(garbage_ship(connection, state)))));
        let refusal = Refused { connection, epoch: Epoch(1), reason: AbortReason::BadState };
        while dispatcher.next_message() != Message::from(AgentToDispatcher::Refused(refusal.clone())) {}
        assert_eq!(scene.agent().count("watari_agent_holds_refused_total", "bad_state"), number.cast_signed());
        check_logged(scene.agent(), &["state cannot be used", &connection.to_string()]);
        scene.check_undisturbed();
    }
    assert_eq!(scene.agent().count("watari_agent_held", ""), 0);
}

fn garbage_ship(connection: ConnectionId, state: &[u8]) -> Ship {
    let [client, server] = [([192, 0, 2, 1], 1000).into(), ([192, 0, 2, 2], 443).into()];
    Ship {
        connection,
        epoch: Epoch(1),
        dispatcher: name(GUEST_DISPATCHER),
        state: SecretBytes::new(state.to_vec()),
        tls: TlsInfo { version: 0x0304, suite: 0x1301, alpn: Vec::new(), server_name: None, resumed: false },
        client_certificate: None,
        client,
        server,
        handshake_node: name(GUEST_AGENT),
        moves: 0,
        opened: SecretBytes::new(Vec::new()),
        rx_offset: 0,
        rest: SecretBytes::new(Vec::new()),
        tail: Vec::new(),
        tail_offset: 0,
    }
}
