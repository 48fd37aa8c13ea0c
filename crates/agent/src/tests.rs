//! An agent whose dispatchers are the tests: they open legs, relay the client's bytes, and change in the middle of a
//! handshake, of a request and of its response.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use watari_handshake::{Certificate, ServerConfig, ServerOptions};
use watari_proxy::{OriginAddress, PoolConfig};
use watari_record::Side;
use watari_stream::TlsStream;
use watari_sys::Acceptor;
use watari_values::{ConnectionId, DispatcherChange, Epoch, SecretBytes};
use watari_wire::leg::{Kind, LEG_FREE, LegSigner, Preface};
use watari_wire::{DetachLeg, Final, Held, LegDetached, LegKept, Ship};

use super::*;
use crate::handoff::testing::{ID, RecordedLinks, about, name, record_layer, shipped};

const WAIT_MAX: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Bytes of each stream before a connection that moves came to the agent.
const RX_OFFSET: u64 = 10;
const TX_OFFSET: u64 = 20;
const TENURE: Epoch = Epoch(1);

/// The content of the request and of its response.
const LEN: usize = 4 << 20;

struct Dispatcher {
    name: NodeName,
    signer: LegSigner,
}

/// An agent, and the client's end of a connection at its dispatchers.
struct Scene {
    shared: Arc<AgentShared>,
    links: RecordedLinks,
    legs: SocketAddr,
    client: DuplexStream,
    tenure: Epoch,
    /// The offsets up to which the dispatchers have relayed both streams.
    rx: u64,
    tx: u64,
    _acceptor: Acceptor,
    _until: tokio_util::sync::DropGuard,
}

impl Scene {
    /// A connection of another agent, and the client's other end. The client's first record is the next one.
    async fn moving() -> (Self, DuplexStream) {
        let (scene, far) = Self::set(None).await;
        (Self { tenure: TENURE, rx: RX_OFFSET, tx: TX_OFFSET, ..scene }, far)
    }

    async fn set(tls: Option<Tls>) -> (Self, DuplexStream) {
        let metrics = watari_proxy::Metrics::default();
        let pool = PoolConfig::plain("echo", [echo().await]);
        let proxy = Proxy::new(watari_proxy::Config::one_pool(pool), metrics).unwrap();
        let site = Arc::new(Site::Proxy(Box::new(proxy)));
        site.start();
        let config = Config {
            name: name("a"),
            settings: Settings { tls, site, limits: Limits::default() },
            sharing: Sharing {
                mode: Mode::Private,
                lifetime: Duration::from_mins(1),
                rotation: Duration::from_mins(1),
                tickets_per_handshake: 1,
                memory_bytes: 1 << 20,
                single_use: false,
                early_data: false,
                keys_file: None,
                database: None,
                redis: None,
            },
            has_predecessor: false,
        };
        let links = RecordedLinks::default();
        let shared = Arc::new(AgentShared::new(config, links.clone(), Metrics::default()).unwrap());
        let shutdown = CancellationToken::new();
        // A new leg may be accepted on another thread than that of its connection.
        let threads = Threads::start("serve", 1, &shutdown).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let legs = listener.local_addr().unwrap();
        let acceptor = Arc::new(shared.legs(ServingThreads::new(&threads))).accept(listener, &shutdown).unwrap();
        let (client, far) = duplex(100_000);
        let (tenure, until) = (Epoch(0), shutdown.drop_guard());
        (Self { shared, links, legs, client, tenure, rx: 0, tx: 0, _acceptor: acceptor, _until: until }, far)
    }

    /// Links a dispatcher.
    fn link(&self, dispatcher: &str) -> Dispatcher {
        let dispatcher = name(dispatcher);
        self.shared.keys.link_up(&dispatcher);
        let keys = self.links.take().into_iter().filter_map(|(to, message)| match message {
            Message::AgentToDispatcher(AgentToDispatcher::LegKey(key)) if to == dispatcher => Some(key),
            _ => None,
        });
        let signer = LegSigner::new(dispatcher.clone(), &name("a"), &keys.last().unwrap());
        Dispatcher { name: dispatcher, signer }
    }

    fn send(&self, from: &Dispatcher, message: DispatcherToAgent) {
        self.shared.on_message(&from.name, &message.into());
    }

    /// Waits for a message of the agent to `to`. Drops others.
    async fn next<T>(&self, to: &Dispatcher, pick: impl Fn(AgentToDispatcher) -> Option<T>) -> T {
        let next = async {
            loop {
                let messages = self.links.take().into_iter().filter(|(node, _)| *node == to.name);
                let picked = messages.filter_map(|(_, message)| match message {
                    Message::AgentToDispatcher(message) => pick(message),
                    _ => None,
                });
                if let Some(picked) = picked.last() {
                    return picked;
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(WAIT_MAX, next).await.expect("the agent sends no such message")
    }

    async fn open(&self, by: &Dispatcher, kind: Kind, surplus: &[u8]) -> TcpStream {
        let about = about();
        let preface = Preface { kind, connection: ID, epoch: self.tenure, client: about.client, server: about.server };
        let mut leg = TcpStream::connect(self.legs).await.unwrap();
        leg.write_all(&[&by.signer.sign(&preface), surplus].concat()).await.unwrap();
        leg
    }

    /// The agent `b` ships the connection, and its dispatcher commits the move.
    async fn begin(&self, dispatcher: &Dispatcher) -> TcpStream {
        let nothing = SecretBytes::new(Vec::new());
        let ship = Ship { opened: nothing.clone(), rest: nothing, tail: Vec::new(), ..shipped() };
        self.shared.on_message(&name("b"), &AgentToAgent::Ship(Box::new(ship)).into());
        let held: Held = self
            .next(dispatcher, |message| match message {
                AgentToDispatcher::Held(held) => Some(held),
                _ => None,
            })
            .await;
        assert_eq!((held.rx_offset, held.tail_offset), (RX_OFFSET, TX_OFFSET));
        self.open(dispatcher, Kind::Commit { rx_offset: RX_OFFSET, tail_offset: TX_OFFSET }, b"").await
    }

    /// Relays both ways.
    async fn relay(&mut self, leg: &mut TcpStream, mut is_enough: impl FnMut(u64, u64) -> bool) {
        let (mut up, mut down, mut has_ended) = ([0; 5000], [0; 7000], false);
        let relay = async {
            while !is_enough(self.rx, self.tx) {
                tokio::select! {
                    read = self.client.read(&mut up), if !has_ended => {
                        let read = read.unwrap();
                        has_ended = read == 0;
                        leg.write_all(&up[..read]).await.unwrap();
                        self.rx += read as u64;
                    }
                    read = leg.read(&mut down) => {
                        let read = read.unwrap();
                        assert!(read > 0, "the leg has ended");
                        self.client.write_all(&down[..read]).await.unwrap();
                        self.tx += read as u64;
                    }
                    () = sleep(POLL_INTERVAL) => {}
                }
            }
        };
        timeout(WAIT_MAX, relay).await.expect("the connection stands still");
    }

    fn detach(&self, number: u32, from: &Dispatcher, to: &Dispatcher) -> Option<u64> {
        self.links.take();
        self.send(from, DispatcherToAgent::DetachLeg(DetachLeg { change: change(number), to: to.name.clone() }));
        let answer = self.links.take().pop()?;
        let (node, Message::AgentToDispatcher(AgentToDispatcher::LegDetached(detached))) = answer else {
            panic!("another message: {answer:?}")
        };
        let LegDetached { change: detached, tx_offset } = detached;
        assert_eq!((node, detached), (from.name.clone(), change(number)));
        Some(tx_offset)
    }

    /// Returns whether the agent answers.
    fn attach(&self, number: u32, from: &Dispatcher) -> bool {
        self.links.take();
        self.send(from, DispatcherToAgent::AttachLeg(change(number)));
        let attached = AgentToDispatcher::LegAttached(change(number)).into();
        self.links.take().pop().is_some_and(|answer| answer == (from.name.clone(), attached))
    }

    /// Sends the client all that was written on the leg.
    async fn drain(&mut self, leg: &mut TcpStream, tx_offset: u64) {
        let mut rest = vec![0; usize::try_from(tx_offset - self.tx).unwrap()];
        timeout(WAIT_MAX, leg.read_exact(&mut rest)).await.unwrap().unwrap();
        self.client.write_all(&rest).await.unwrap();
        self.tx = tx_offset;
    }

    /// Changes the dispatcher. `surplus_len`: the bytes of the client that come with the preface.
    async fn change(
        &mut self,
        number: u32,
        (leg, from): (&mut TcpStream, &Dispatcher),
        to: &Dispatcher,
        surplus_len: usize,
    ) -> TcpStream {
        let tx_offset = self.detach(number, from, to).unwrap();
        assert_eq!(self.detach(number, from, to), Some(tx_offset), "a repeated request has the same answer");
        self.drain(leg, tx_offset).await;
        let mut surplus = vec![0; surplus_len];
        self.client.read_exact(&mut surplus).await.unwrap();
        let kind = Kind::Continue { change: number, rx_offset: self.rx, tx_offset };
        let leg = self.open(to, kind, &surplus).await;
        self.rx += surplus_len as u64;
        self.announced(to).await;
        assert_eq!((self.shared.registry.of(&from.name), self.shared.registry.of(&to.name)), (0, 1));
        leg
    }

    /// Waits until the agent announces the connection.
    async fn announced(&self, to: &Dispatcher) {
        let is_established = |message| matches!(message, AgentToDispatcher::Established(_)).then_some(());
        self.next(to, is_established).await;
    }

    /// Relays both ways to the end that the agent announces.
    async fn relay_to_end(&mut self, leg: &mut TcpStream, by: &Dispatcher) {
        let (links, mut end) = (self.links.clone(), None);
        let is_over = |_, tx| {
            let announced = || {
                links.take().into_iter().find_map(|(to, message)| match message {
                    Message::AgentToDispatcher(AgentToDispatcher::Final(end)) if to == by.name => Some(end),
                    _ => None,
                })
            };
            end = end.take().or_else(announced);
            end.as_ref().is_some_and(|end: &Final| end.tx_offset == tx)
        };
        self.relay(leg, is_over).await;
        assert_eq!(end, Some(Final { connection: ID, epoch: self.tenure, tx_offset: self.tx }));
    }
}

/// Settings of an agent, and those of a client that trusts it.
fn tls() -> (Tls, TlsConnector) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["site.test".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let certificate = Certificate::from_der(vec![leaf.der().to_vec()], &key.serialize_der()).unwrap();
    let options = ServerOptions { certificates: vec![certificate], ..ServerOptions::default() };
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tls = Tls { default: ServerConfig::new(&options).unwrap(), listeners: Vec::new() };
    (tls, Arc::new(config).into())
}

fn change(number: u32) -> DispatcherChange {
    DispatcherChange { connection: ID, number }
}

/// An origin that answers with the content of the request.
async fn echo() -> OriginAddress {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut received = Vec::new();
                let head_len = loop {
                    if stream.read_buf(&mut received).await.unwrap() == 0 {
                        return;
                    }
                    if let Some(at) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                        break at + 4;
                    }
                };
                let mut content = received.split_off(head_len);
                while content.len() < LEN {
                    assert!(stream.read_buf(&mut content).await.unwrap() > 0, "the request is cut");
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(&content).await.unwrap();
            });
        }
    });
    address
}

/// Sends a request, checks that it comes back as the response, and ends.
async fn client(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let content: Vec<u8> = (0..LEN).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let head = format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {LEN}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&content).await.unwrap();
    stream.flush().await.unwrap();
    let mut response = Vec::new();
    while response.len() < LEN {
        assert!(stream.read_buf(&mut response).await.unwrap() > 0, "the response is cut");
    }
    let head_len = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    response.drain(..head_len);
    let begun = response.len();
    response.resize(LEN, 0);
    stream.read_exact(&mut response[begun..]).await.unwrap();
    assert!(response == content, "the response differs");
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the agent answers by close_notify");
}

#[tokio::test]
async fn dispatchers_change_within_a_request_and_within_its_response() {
    let (mut scene, far) = Scene::moving().await;
    let (d, e, f) = (scene.link("d"), scene.link("e"), scene.link("f"));
    let client = tokio::spawn(client(TlsStream::new(far, record_layer(Side::Client))));
    let mut leg_d = scene.begin(&d).await;
    scene.relay(&mut leg_d, |rx, _| rx > 1 << 20).await;
    let mut leg_e = scene.change(1, (&mut leg_d, &d), &e, 3000).await;
    drop(leg_d);
    scene.relay(&mut leg_e, |rx, _| rx > 2 << 20).await;

    // An attempt that fails.
    let tx_offset = scene.detach(2, &e, &d).unwrap();
    assert_eq!(tx_offset, scene.tx);
    assert!(!scene.attach(2, &d), "that is for its dispatcher to say");
    assert!(scene.shared.leg_table.is_detached(ID));
    // This dispatcher has not given the connection up. It repeats what was not answered.
    assert!(scene.attach(2, &e) && scene.attach(2, &e));
    assert!(!scene.shared.leg_table.is_detached(ID) && !scene.attach(1, &e));
    let mut early = scene.open(&d, Kind::Continue { change: 2, rx_offset: scene.rx, tx_offset }, b"").await;
    assert!(timeout(WAIT_MAX, early.read(&mut [0])).await.unwrap().is_err(), "the leg is refused");
    scene.relay(&mut leg_e, |_, tx| tx > 1 << 20).await;

    let mut leg_f = scene.change(3, (&mut leg_e, &e), &f, 0).await;
    // The previous dispatcher is slow to close its leg.
    scene.relay_to_end(&mut leg_f, &f).await;
    timeout(WAIT_MAX, client).await.unwrap().unwrap();

    // The leg carries another connection.
    let kept = |by: &Dispatcher| {
        let kept = LegKept { connection: ID, epoch: TENURE, rx_offset: scene.rx };
        scene.send(by, DispatcherToAgent::LegKept(kept));
    };
    kept(&e);
    kept(&f);
    let mut free = [0];
    timeout(WAIT_MAX, leg_f.read_exact(&mut free)).await.unwrap().unwrap();
    assert_eq!(free, [LEG_FREE]);
}

#[tokio::test]
async fn dispatchers_change_within_a_handshake() {
    let (tls, connector) = tls();
    let (mut scene, far) = Scene::set(Some(tls)).await;
    let (d, e) = (scene.link("d"), scene.link("e"));
    let client = tokio::spawn(async move {
        let stream = connector.connect("site.test".try_into().unwrap(), far).await.unwrap();
        client(stream).await;
    });
    let mut leg = scene.open(&d, Kind::New { bulk: None }, b"").await;
    // The agent has answered the client's first message.
    scene.relay(&mut leg, |_, tx| tx > 0).await;
    let tx_offset = scene.detach(1, &d, &e).unwrap();
    assert_eq!(scene.shared.registry.of(&d.name), 0, "it is not served yet");
    scene.drain(&mut leg, tx_offset).await;
    drop(leg);
    let kind = Kind::Continue { change: 1, rx_offset: scene.rx, tx_offset };
    let mut leg = scene.open(&e, kind, b"").await;
    let before = scene.rx;
    scene.relay(&mut leg, |rx, _| rx > before).await;
    scene.announced(&e).await;
    scene.relay_to_end(&mut leg, &e).await;
    timeout(WAIT_MAX, client).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_that_is_not_here_is_not_continued() {
    let (scene, _far) = Scene::moving().await;
    let (d, e) = (scene.link("d"), scene.link("e"));
    assert_eq!(scene.detach(1, &d, &e), None);
    let mut leg = scene.open(&e, Kind::Continue { change: 1, rx_offset: 10, tx_offset: 20 }, b"x").await;
    assert!(timeout(WAIT_MAX, leg.read(&mut [0])).await.unwrap().is_err());
    assert_eq!(scene.shared.registry.of(&e.name), 0);
    scene.send(
        &d,
        DispatcherToAgent::AttachLeg(DispatcherChange { connection: ConnectionId { boot: 9, number: 9 }, number: 1 }),
    );
}

/// A dispatcher that has given the connection up no longer has it.
#[tokio::test]
async fn a_detached_connection_is_not_gone() {
    let (scene, _far) = Scene::moving().await;
    let (d, e) = (scene.link("d"), scene.link("e"));
    let _leg = scene.begin(&d).await;
    let served = async {
        while scene.shared.registry.of(&d.name) == 0 {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(WAIT_MAX, served).await.unwrap();
    assert_eq!(scene.detach(1, &d, &e), Some(TX_OFFSET));
    scene.send(&d, DispatcherToAgent::Gone(ID));
    let kind = Kind::Continue { change: 1, rx_offset: RX_OFFSET, tx_offset: TX_OFFSET };
    let _leg = scene.open(&e, kind, b"").await;
    scene.announced(&e).await;
}
