//! Requests that wait for a slot at the origins of a pool.

use std::convert::Infallible;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;
use watari_proxy::{Client, Config, OriginAddress, PoolConfig, Proxy, QueueLimits, QueueSettings, QueueStatus, Rule};
use watari_test_origins::{Content, Fault, Moment, Origin, Resource};

use crate::common::upgrade::{AGREED, LONG, get_echo, join};
use crate::common::{Fixture, ScriptedOrigin, answer_and_stall, get, get_path, ok, read};

const WAIT_MAX: Duration = Duration::from_secs(20);
const LIMIT: usize = 10;

/// An origin that responds as soon as it has its maximum of requests. It counts the most that it ever had.
#[derive(Clone)]
struct Counting {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    all_there: Arc<Barrier>,
}

impl Counting {
    async fn start() -> (Self, OriginAddress) {
        let counting = Self { now: Arc::default(), most: Arc::default(), all_there: Arc::new(Barrier::new(LIMIT)) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(counting.clone().accept(listener));
        (counting, address)
    }

    async fn accept(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let counting = self.clone();
            let service = service_fn(move |request| counting.clone().answer(request));
            connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    }

    async fn answer(self, _: Request<Incoming>) -> Result<Response<Empty<bytes::Bytes>>, Infallible> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.all_there.wait().await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(Response::new(Empty::new()))
    }
}

fn limits(in_progress_max: usize, waiting_max: Option<usize>) -> QueueLimits {
    QueueLimits { in_progress_max: NonZeroUsize::new(in_progress_max), waiting_max, wait_max: None }
}

fn queue(all: QueueLimits) -> QueueSettings {
    QueueSettings { rules: Vec::new(), all, priority: 0, one_in: NonZeroU32::new(10).unwrap() }
}

fn pool(origin: OriginAddress, queue: QueueSettings) -> PoolConfig {
    PoolConfig { queue: Some(queue), ..PoolConfig::plain("pool", [origin]) }
}

fn status(fixture: &Fixture) -> Vec<QueueStatus> {
    fixture.proxy.status().remove(0).queue
}

fn load(pattern: Option<&str>, in_progress: usize, waiting: usize) -> QueueStatus {
    QueueStatus { pattern: pattern.map(str::to_owned), in_progress, waiting }
}

/// The cache server's experiment (Nakayama 2003, section 5.3): concurrency 100, a limit of 10.
#[tokio::test]
async fn the_origin_never_sees_more_than_the_limit_and_all_are_served() {
    let (counting, address) = Counting::start().await;
    let fixture = Arc::new(Fixture::of(pool(address, queue(limits(LIMIT, None)))));
    let mut clients = JoinSet::new();
    for number in 0..100_u8 {
        let fixture = Arc::clone(&fixture);
        clients.spawn(async move {
            let address = ([192, 0, 2, number % 20], 1234).into();
            let client = Client::new(address, "192.0.2.1:443".parse().unwrap(), None);
            read(fixture.proxy.respond(get(), &client).await).await
        });
    }
    let served = timeout(WAIT_MAX, clients.join_all()).await.expect("all are served");
    assert!(served.iter().all(|(status, body)| *status == 200 && body.is_ok()));
    assert_eq!(counting.most.load(Ordering::SeqCst), LIMIT);
    assert_eq!(status(&fixture), [load(None, 0, 0)]);
}

#[tokio::test]
async fn a_place_is_kept_until_the_body_has_ended() {
    let origin = ScriptedOrigin::start([ok("first"), ok("second"), ok("third")]).await;
    let fixture = Fixture::of(pool(origin.address.clone(), queue(limits(1, Some(0)))));
    let first = fixture.respond(get()).await;
    assert_eq!(status(&fixture), [load(None, 1, 0)]);
    let refused = fixture.respond(get()).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(read(first).await.1, Ok("first".into()));
    let second = fixture.respond(get()).await;
    assert_eq!(second.status(), 200);
    drop(second);
    assert_eq!(fixture.get().await.0, 200);
    fixture.assert_metric("watari_proxy_failures_total{reason=\"queue\"} 1");
}

#[tokio::test]
async fn a_place_is_kept_until_the_tunnel_has_ended() {
    let origin = ScriptedOrigin::start([answer_and_stall(AGREED), ok("next")]).await;
    let fixture = Fixture::of(pool(origin.address.clone(), queue(limits(1, Some(0)))));
    let (client, end) = join(fixture.respond(get_echo()).await, LONG);
    assert_eq!(status(&fixture), [load(None, 1, 0)]);
    assert_eq!(fixture.respond(get()).await.status(), 503);
    end.abort();
    drop((client, end.await));
    assert_eq!(status(&fixture), [load(None, 0, 0)]);
    assert_eq!(fixture.get().await, (200, Ok("next".into())));
}

#[tokio::test]
async fn a_client_that_leaves_gives_its_place_back() {
    let origin = ScriptedOrigin::start([ok("first"), ok("second")]).await;
    let fixture = Fixture::of(pool(origin.address.clone(), queue(limits(1, None))));
    let first = fixture.respond(get()).await;
    let mut waiting = Box::pin(fixture.respond(get()));
    assert!(is_pending(&mut waiting).await);
    assert_eq!(status(&fixture), [load(None, 1, 1)]);
    drop(waiting);
    assert_eq!(status(&fixture), [load(None, 1, 0)]);
    drop(first);
    assert_eq!(fixture.get().await, (200, Ok("second".into())));
}

/// Whether a future is still pending.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
}

#[tokio::test]
async fn waiting_requests_follow_a_reload() {
    let (busy, other) = (ScriptedOrigin::start([ok("first")]).await, ScriptedOrigin::start([ok("second")]).await);
    let pool = |max| PoolConfig {
        queue: Some(queue(limits(max, None))),
        ..PoolConfig::plain("pool", [busy.address.clone(), other.address.clone()])
    };
    let old = Fixture::of(pool(1));
    let first = old.respond(get()).await;
    let mut second = Box::pin(old.respond(get()));
    assert!(is_pending(&mut second).await);
    let next = Proxy::succeed(Config::one_pool(pool(2)), &old.proxy, |_| false).unwrap();
    assert!(is_pending(&mut second).await, "it holds although it might still be refused");
    next.start();
    assert_eq!(read(second.await).await, (200, Ok("second".into())));
    assert_eq!(next.status()[0].queue, [load(None, 1, 0)]);
    drop(first);
    assert_eq!(next.status()[0].queue, [load(None, 0, 0)]);
    old.assert_metric("watari_proxy_queue_in_progress{pool=\"pool\",rule=\"none\"} 0");
}

#[tokio::test]
async fn each_pattern_has_its_own_limit() {
    let first = ScriptedOrigin::start([ok("slow")]).await;
    let second = ScriptedOrigin::start([ok("other")]).await;
    let rule = Rule { pattern: "/cgi-bin/*".parse().unwrap(), limits: limits(1, Some(0)), priority: 0 };
    let queue = QueueSettings { rules: vec![rule], ..queue(QueueLimits::default()) };
    let pool = PoolConfig { queue: Some(queue), ..PoolConfig::plain("pool", [first.address, second.address]) };
    let fixture = Fixture::of(pool);
    let response = fixture.respond(get_path("/cgi-bin/slow")).await;
    assert_eq!(fixture.respond(get_path("/cgi-bin/slow")).await.status(), 503);
    assert_eq!(fixture.get().await, (200, Ok("other".into())));
    assert_eq!(status(&fixture), [load(None, 1, 0), load(Some("/cgi-bin/*"), 1, 0)]);
    drop(response);
}

#[tokio::test]
async fn requests_in_progress_waiting_and_refused_are_counted() {
    let origin = ScriptedOrigin::start([ok("slow"), ok("next")]).await;
    let of_rule = |pattern: &str, waiting_max, wait_max_ms: Option<u64>| {
        let wait_max = wait_max_ms.map(Duration::from_millis);
        Rule {
            pattern: pattern.parse().unwrap(),
            limits: QueueLimits { wait_max, ..limits(1, waiting_max) },
            priority: 0,
        }
    };
    let rules = vec![of_rule("/full", Some(0), None), of_rule("/late", None, Some(1)), of_rule("/slow", None, None)];
    let all = limits(1, None);
    let fixture = Fixture::of(pool(origin.address.clone(), QueueSettings { rules, ..queue(all) }));
    let slow = fixture.respond(get_path("/slow")).await;
    let mut next = Box::pin(fixture.get());
    assert!(is_pending(&mut next).await);
    let mut leaves = Box::pin(fixture.respond(get_path("/slow")));
    assert!(is_pending(&mut leaves).await);
    assert_eq!(fixture.respond(get_path("/full")).await.status(), 503);
    assert_eq!(fixture.respond(get_path("/late")).await.status(), 503);
    for line in [
        "in_progress{pool=\"pool\",rule=\"/slow\"} 1",
        "in_progress{pool=\"pool\",rule=\"none\"} 0",
        "waiting{pool=\"pool\",rule=\"/slow\"} 1",
        "waiting{pool=\"pool\",rule=\"/late\"} 0",
        "waiting{pool=\"pool\",rule=\"none\"} 1",
        "refused_total{pool=\"pool\",rule=\"/full\",cause=\"full\"} 1",
        "refused_total{pool=\"pool\",rule=\"/late\",cause=\"timeout\"} 1",
    ] {
        fixture.assert_metric(&format!("watari_proxy_queue_{line}"));
    }
    drop((leaves, slow));
    assert_eq!(next.await.0, 200);
    for line in [
        "in_progress{pool=\"pool\",rule=\"/slow\"} 0",
        "in_progress{pool=\"pool\",rule=\"none\"} 0",
        "waiting{pool=\"pool\",rule=\"none\"} 0",
        "refused_total{pool=\"pool\",rule=\"/slow\",cause=\"client_gone\"} 1",
        "wait_seconds_count{pool=\"pool\",rule=\"none\"} 1",
        "wait_seconds_count{pool=\"pool\",rule=\"/late\"} 0",
    ] {
        fixture.assert_metric(&format!("watari_proxy_queue_{line}"));
    }
}

#[tokio::test]
async fn a_transfer_keeps_its_place_where_it_moves() {
    let resource = || Resource::new(Content::generated(1, 300_000));
    let first = Origin::faulty(resource(), Moment::Transfer, Fault::Death { after: 100_000 });
    let second = Origin::start(resource());
    let addresses = [&first, &second].map(|origin| origin.url().parse().unwrap());
    let pool = PoolConfig { queue: Some(queue(limits(1, None))), ..PoolConfig::plain("pool", addresses) };
    let fixture = Fixture::of(pool);
    let mut body = fixture.respond(get_path("/file")).await.into_body();
    let mut received = 0;
    while let Some(frame) = timeout(WAIT_MAX, body.frame()).await.expect("it comes to an end") {
        received += frame.unwrap().data_ref().unwrap().len();
        assert_eq!(status(&fixture), [load(None, usize::from(received < 300_000), 0)]);
    }
    assert!(second.requests().iter().any(|request| request.field("range").is_some()), "it moved");
}
