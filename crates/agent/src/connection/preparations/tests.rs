#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use http::{Response, StatusCode};
use tempfile::{TempDir, tempdir};
use watari_http1::{ContentSize, Limits as Http1Limits};
use watari_values::SecretBytes;
use watari_wire::{AnchoredId, Message};

use super::*;
use crate::connection::stalls::Transfers;
use crate::handoff::testing::{self, ID, Node, about, name};
use crate::node::slots::Slots;
use crate::settings::limits::Limits;

const LEN: u64 = 1000;
const REQUEST: &[u8] = b"GET /file HTTP/1.1\r\nHost: h\r\n\r\n";

/// An agent with one file, which other agents ask to continue responses.
struct Rig {
    node: Node,
    preparations: Arc<Preparations>,
    slots: Arc<Slots>,
    etag: Vec<u8>,
    _root: TempDir,
}

impl Rig {
    async fn new(limits: Limits) -> Self {
        let root = tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, vec![b'x'; LEN as usize]).unwrap();
        let settled = SystemTime::UNIX_EPOCH + Duration::from_hours(498_198);
        File::options().write(true).open(&file).unwrap().set_modified(settled).unwrap();
        let node = Node::serving(root.path(), limits);
        let slots = Slots::new(limits.requests_max);
        let (settings, metrics) = (node.settings.clone(), node.metrics.clone());
        let requests = Requests::new(settings.clone(), metrics.clone(), slots.clone(), Arc::<Transfers>::default());
        let anchors = Arc::new(Anchors::new(node.peers.clone()));
        let preparations =
            Arc::new(Preparations::new(node.peers.clone(), settings, metrics, Arc::new(requests), anchors));
        let etag = etag(root.path()).await;
        Self { node, preparations, slots, etag, _root: root }
    }

    /// The answer to a question of the agent `b`.
    async fn ask(&self, number: u32, part: Option<ResponsePart>) -> Option<PrepareRefusal> {
        self.ask_for(number, part.map_or(PrepareRest::Bytes, PrepareRest::Part)).await
    }

    async fn ask_for(&self, number: u32, rest: PrepareRest) -> Option<PrepareRefusal> {
        let about = about();
        let prepare = Prepare {
            connection: ID,
            number,
            client: about.client,
            server: about.server,
            client_certificate: None,
            rest,
        };
        self.preparations.on_prepare(&name("b"), &prepare);
        loop {
            if let Some((to, Message::AgentToAgent(AgentToAgent::Prepared(prepared)))) = self.node.links.take().pop() {
                assert_eq!((to, prepared.connection, prepared.number), (name("b"), ID, number));
                return prepared.refused;
            }
            tokio::task::yield_now().await;
        }
    }

    fn part(&self, first: u64) -> ResponsePart {
        let request = SecretBytes::new(REQUEST.to_vec());
        ResponsePart { request, etag: self.etag.clone(), first, last: LEN - 1, complete_len: LEN }
    }

    fn take(&self, from: &str, shipped: &ShipInResponse) -> Result<usize, CannotContinue> {
        self.preparations.take(&name(from), shipped).map(|continuation| continuation.len())
    }
}

/// The validator of the file, as an agent with a copy has it.
async fn etag(root: &Path) -> Vec<u8> {
    let files = watari_files::Files::open(root, watari_files::Metrics::default()).unwrap();
    let (head, ()) = http::Request::get("/file").body(()).unwrap().into_parts();
    let response = files.respond(&head).await;
    response.headers()[http::header::ETAG].as_bytes().to_vec()
}

/// The connection within a response of [`LEN`] bytes, of which `sent` bytes are framed.
fn shipped(number: u32, sent: u64, rest: ResponseRest) -> ShipInResponse {
    let mut server = responding(REQUEST, StatusCode::OK, ContentSize::Known(LEN));
    server.encode(sent as usize).unwrap();
    shipped_in(&server, number, 0, rest)
}

/// A connection whose response to `request` has begun.
fn responding(request: &[u8], status: StatusCode, size: ContentSize) -> Server {
    let mut server = Server::new(Http1Limits::default());
    server.parse_request(request).unwrap().unwrap();
    let (head, ()) = Response::builder().status(status).header("upgrade", "x").body(()).unwrap().into_parts();
    server.start_response(&head, size, &HeaderValue::from_static("now"), &mut Vec::new()).unwrap();
    server
}

/// A connection with 6 framed bytes and `pending` others.
fn shipped_in(server: &Server, number: u32, pending: usize, rest: ResponseRest) -> ShipInResponse {
    let mut http = Vec::new();
    server.export(&mut http);
    let (unwritten, pending) = (SecretBytes::new(b"framed".to_vec()), SecretBytes::new(vec![0; pending]));
    ShipInResponse { ship: testing::shipped(), number, http, unwritten, pending, rest }
}

/// A stream whose anchor is this agent.
fn anchored(anchor: &str) -> ResponseRest {
    ResponseRest::Anchored(watari_anchor::first_owner(name(anchor), AnchoredId(7)))
}

#[tokio::test]
async fn a_part_of_the_same_file_is_prepared_and_taken_once() {
    let rig = Rig::new(Limits::default()).await;
    assert_eq!(rig.ask(1, Some(rig.part(400))).await, None);
    assert_eq!(rig.slots.taken(), 1, "it counts as a request");
    let connection = shipped(1, 450, ResponseRest::Prepared { skip: 50 });
    assert!(matches!(rig.take("c", &connection), Err(CannotContinue::NotPrepared)), "another agent has asked");
    let other = ShipInResponse { number: 2, ..connection.clone() };
    assert!(matches!(rig.take("b", &other), Err(CannotContinue::NotPrepared)));
    assert_eq!(rig.take("b", &connection).unwrap(), 6);
    assert!(matches!(rig.take("b", &connection), Err(CannotContinue::NotPrepared)));
    assert_eq!(rig.slots.taken(), 0);
}

#[tokio::test]
async fn what_this_agent_cannot_continue_is_refused() {
    let rig = Rig::new(Limits { requests_max: 1, ..Limits::default() }).await;
    let part = || rig.part(400);
    let other_version = ResponsePart { etag: b"\"other\"".to_vec(), ..part() };
    let other_len = ResponsePart { complete_len: LEN + 1, ..part() };
    let backwards = ResponsePart { first: 10, last: 9, ..part() };
    let missing = ResponsePart { request: SecretBytes::new(b"GET /no HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()), ..part() };
    let nonsense = ResponsePart { request: SecretBytes::new(b"nonsense".to_vec()), ..part() };
    for (part, refused) in [
        (other_version, PrepareRefusal::Validator),
        (other_len, PrepareRefusal::Response),
        (backwards, PrepareRefusal::Response),
        (missing, PrepareRefusal::Validator),
        (nonsense, PrepareRefusal::Response),
    ] {
        assert_eq!(rig.ask(1, Some(part)).await, Some(refused));
        assert!(rig.preparations.entries().is_empty());
    }
    let _slot = rig.slots.take();
    assert_eq!(rig.ask(2, Some(part())).await, Some(PrepareRefusal::Full));
}

#[tokio::test]
async fn a_state_that_does_not_fit_the_rest_is_refused() {
    let rig = Rig::new(Limits::default()).await;
    let bytes = |pending| {
        let pending = SecretBytes::new(vec![0; pending]);
        ShipInResponse { pending, ..shipped(1, 900, ResponseRest::End) }
    };
    let good = bytes(100);
    let http2 = {
        let mut connection = good.clone();
        connection.ship.tls.alpn = b"h2".to_vec();
        connection
    };
    let unreadable = ShipInResponse { http: vec![9; 27], ..good.clone() };
    for bad in [
        http2,
        unreadable,
        bytes(99),
        shipped(1, 900, ResponseRest::Prepared { skip: 0 }),
        shipped(1, 900, anchored("b")),
    ] {
        assert_eq!(rig.ask(1, None).await, None);
        assert!(rig.take("b", &bad).is_err());
    }
    assert_eq!(rig.ask(1, None).await, None);
    assert_eq!(rig.take("b", &good).unwrap(), 106);
    for (sent, skip) in [(450, 49), (450, 51), (450, u64::MAX), (400, 1)] {
        assert_eq!(rig.ask(1, Some(rig.part(400))).await, None);
        let connection = shipped(1, sent, ResponseRest::Prepared { skip });
        assert!(matches!(rig.take("b", &connection), Err(CannotContinue::Mismatch)), "{sent} {skip}");
    }
}

#[tokio::test]
async fn bytes_that_come_from_an_anchor_need_a_link_and_a_slot() {
    let rig = Rig::new(Limits { requests_max: 1, ..Limits::default() }).await;
    let from = |anchor: &str| PrepareRest::Anchored { anchor: name(anchor) };
    rig.node.links.set_down("c");
    assert_eq!(rig.ask_for(1, from("c")).await, Some(PrepareRefusal::NoLink));
    let upgrade = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    let tunnel = responding(upgrade, StatusCode::SWITCHING_PROTOCOLS, ContentSize::None);
    let events = responding(REQUEST, StatusCode::OK, ContentSize::Unknown);
    let known = responding(REQUEST, StatusCode::OK, ContentSize::Known(LEN));
    for (server, rest, fits) in [
        (&tunnel, anchored("b"), true),
        (&events, anchored("b"), true),
        (&known, anchored("b"), false),
        (&tunnel, anchored("c"), false),
        (&tunnel, ResponseRest::End, false),
        (&events, ResponseRest::End, false),
    ] {
        assert_eq!(rig.ask_for(1, from("b")).await, None);
        assert_eq!(rig.slots.taken(), 1, "it counts as a request");
        assert_eq!(rig.take("b", &shipped_in(server, 1, 5, rest.clone())).is_ok(), fits, "{rest:?}");
        assert_eq!(rig.slots.taken(), 0);
    }
    assert_eq!(rig.ask(1, None).await, None);
    assert!(rig.take("b", &shipped_in(&tunnel, 1, 0, anchored("b"))).is_err(), "other bytes were announced");
    let _slot = rig.slots.take();
    assert_eq!(rig.ask_for(2, from("b")).await, Some(PrepareRefusal::Full));
}

#[tokio::test]
async fn preparations_are_bounded_in_number_and_time() {
    let rig = Rig::new(Limits { held_max: 1, ..Limits::default() }).await;
    assert_eq!(rig.ask(1, Some(rig.part(0))).await, None);
    assert_eq!(rig.ask(2, Some(rig.part(500))).await, None, "a later one of the same connection replaces it");
    assert_eq!(rig.slots.taken(), 1);
    let other = ConnectionId { number: ID.number + 1, ..ID };
    assert!(!rig.preparations.enter(&question_for(other)));
    rig.preparations.expire();
    assert_eq!(rig.slots.taken(), 1);
    rig.preparations.entries().get_mut(&ID).unwrap().expires = Instant::now();
    rig.preparations.expire();
    assert_eq!(rig.slots.taken(), 0);
}

/// A question of the agent `b`, with the number 1.
fn question_for(connection: ConnectionId) -> Arc<Question> {
    let client = Arc::new(Client::new(about().client, about().server, None));
    Arc::new(Question { from: name("b"), connection, number: 1, client })
}

/// The site is slow, and the connection has begun another response meanwhile.
#[tokio::test]
async fn what_an_earlier_question_of_the_same_number_has_prepared_is_not_taken() {
    let rig = Rig::new(Limits::default()).await;
    let [earlier, later] = [(); 2].map(|()| question_for(ID));
    assert!(rig.preparations.enter(&earlier) && rig.preparations.enter(&later));
    rig.preparations.finish(&earlier, Ok(Rest::Shipped));
    assert!(rig.node.links.take().is_empty());
    rig.preparations.finish(&later, Err(PrepareRefusal::Response));
    assert_eq!(rig.node.links.take().len(), 1);
    assert!(rig.preparations.enter(&later));
    rig.preparations.finish(&earlier, Err(PrepareRefusal::Response));
    rig.preparations.finish(&later, Ok(Rest::Shipped));
    let pending = SecretBytes::new(vec![0; 100]);
    let connection = ShipInResponse { pending, ..shipped(1, 900, ResponseRest::End) };
    assert_eq!(rig.take("b", &connection).unwrap(), 106);
}
