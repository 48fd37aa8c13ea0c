//! Origins that stop, or send slowly, without failing: before a move, during it and after it.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use watari_proxy::{Governor, Handover, Limits, OriginAddress, OriginConfig, PoolConfig};
use watari_test_origins::{Content, Fault, Manners, Moment, Origin, Resource};

use super::{CUT_AT, LEN, WAIT_MAX, get, receive, resource, until};
use crate::common::download::Download;
use crate::common::{Fixture, pass};

/// Longer than any wait of a correct run.
const LONG: Duration = Duration::from_mins(10);
const STALLED: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(50);

/// A pool in which only `handover.stalled` is short: no other timeout ends a wait.
fn pool_with_stall_timeout() -> PoolConfig {
    let mut handover = Handover { length_min: 0, ..Handover::default() };
    handover.governor.stalled = Some(STALLED);
    let limits = Limits { response_timeout: LONG, body_timeout: LONG, ..Limits::default() };
    PoolConfig { limits, handover: Some(handover), ..PoolConfig::plain("pool", []) }
}

fn stall_fixture(origins: impl IntoIterator<Item = String>) -> Fixture {
    of(origins, pool_with_stall_timeout())
}

/// Such a pool, in which a stall moves no transfer.
fn fixture_without_stalls(origins: impl IntoIterator<Item = String>) -> Fixture {
    let mut pool = pool_with_stall_timeout();
    pool.handover.as_mut().unwrap().governor.stalled = None;
    of(origins, pool)
}

fn of(origins: impl IntoIterator<Item = String>, pool: PoolConfig) -> Fixture {
    let origins = origins.into_iter().map(|url| url.parse::<OriginAddress>().unwrap().into()).collect();
    Fixture::of(PoolConfig { origins, ..pool })
}

fn origin(origin: &Origin) -> OriginConfig {
    OriginConfig::from(origin.url().parse::<OriginAddress>().unwrap())
}

#[track_caller]
fn assert_moved(fixture: &Fixture, to: &Origin, cause: &str) {
    let line = format!("watari_proxy_handovers_total{{pool=\"pool\",to=\"{}\",cause=\"{cause}\"}} 1", to.url());
    fixture.assert_metric(&line);
}

/// The whole file arrives in time.
async fn assert_complete(fixture: &Fixture) {
    let received = receive(get(fixture, None).await).await;
    assert_eq!((received.error, received.bytes.len() as u64), (None, LEN));
    assert_eq!(resource().content.difference(0, &received.bytes), None);
}

/// No byte of the silent origin is needed, even if the earlier bytes suggest a high rate.
#[tokio::test]
async fn a_silent_origin_is_left() {
    for after in [1, 5000, CUT_AT, LEN - 1] {
        let first = Origin::faulty(resource(), Moment::Transfer, Fault::Stall { after });
        let second = Origin::start(resource());
        let fixture = stall_fixture([first.url(), second.url()]);
        assert_complete(&fixture).await;
        assert_moved(&fixture, &second, "stalled");
    }
}

#[tokio::test]
async fn a_crawling_origin_is_left() {
    let first = Origin::faulty(resource(), Moment::Transfer, Fault::Crawl { after: CUT_AT, every: STEP });
    let second = Origin::start(resource());
    let fixture = stall_fixture([first.url(), second.url()]);
    assert_complete(&fixture).await;
    assert_moved(&fixture, &second, "stalled");
}

/// With default settings: not before ten seconds after the last byte, and soon after that.
#[tokio::test]
async fn by_default_a_silent_origin_is_left_long_before_its_response_is_given_up() {
    let (governor, limits) = (Governor::default(), Limits::default());
    let stalled = governor.stalled.unwrap();
    assert_eq!(stalled, Duration::from_secs(10));
    assert!(3 * stalled <= limits.body_timeout.min(limits.response_timeout));
    let first = Origin::faulty(resource(), Moment::Transfer, Fault::Stall { after: CUT_AT });
    let second = Origin::start(resource());
    let fixture = of([first.url(), second.url()], PoolConfig::plain("pool", []));
    let content = resource().content;
    let mut download = Download::begin(&fixture, "/file", &content).await;
    download.read_to(CUT_AT).await.unwrap();
    let next = Duration::from_millis(50);
    assert!(timeout(next, download.piece()).await.is_err());
    pass(Duration::from_secs(9)).await;
    assert!(timeout(next, download.piece()).await.is_err(), "it has been left too early");
    pass(Duration::from_secs(2)).await;
    download.read_to_the_end().await.unwrap();
    assert_moved(&fixture, &second, "stalled");
}

/// The order comes after the origin has stopped. Only orders move transfers here.
#[tokio::test]
async fn a_silent_origin_that_is_drained_is_left_at_once() {
    let first = Origin::faulty(resource(), Moment::Transfer, Fault::Stall { after: CUT_AT });
    let second = Origin::start(resource());
    let fixture = fixture_without_stalls([first.url(), second.url()]);
    let content = resource().content;
    let mut download = Download::begin(&fixture, "/file", &content).await;
    download.read_to(CUT_AT).await.unwrap();
    assert!(timeout(STEP, download.piece()).await.is_err());
    fixture.proxy.drain(&first.url().parse().unwrap(), true).unwrap();
    download.read_to_the_end().await.unwrap();
    assert_moved(&fixture, &second, "draining");
}

/// The other origin is asked for bytes ahead of a healthy source. Then the source does not get there.
#[tokio::test]
async fn an_origin_that_falls_silent_before_the_seam_is_left() {
    const BEGUN: u64 = 1 << 20;
    const LAST: u64 = BEGUN + (128 << 10);
    let resource = Resource::new(Content::generated(5, 8 << 20));
    for fault in [Fault::Stall { after: LAST }, Fault::Crawl { after: LAST, every: STEP }] {
        let first = Origin::faulty(resource.clone(), Moment::Transfer, fault);
        let second = Origin::start(resource.clone());
        let late = relay(second.address(), Duration::from_millis(500)).await;
        let fixture = fixture_without_stalls([first.url(), late.clone()]);
        let mut download = Download::begin(&fixture, "/file", &resource.content).await;
        download.read_to(BEGUN).await.unwrap();
        // The delay of its responses has been measured.
        until(|| fixture.proxy.status()[0].resources.first().is_some_and(|known| known.elsewhere.len() == 1)).await;
        fixture.proxy.drain(&first.url().parse().unwrap(), true).unwrap();
        sleep(STALLED).await;
        download.read_to_the_end().await.unwrap();
        let line = format!("watari_proxy_handovers_total{{pool=\"pool\",to=\"{late}\",cause=\"draining\"}} 1");
        fixture.assert_metric(&line);
    }
}

/// The first origin is silent, or dead. The second one accepts connections, and does not respond.
#[tokio::test]
async fn an_origin_that_does_not_answer_is_not_waited_for_while_there_is_another_one() {
    for fault in [Fault::Stall { after: CUT_AT }, Fault::Death { after: CUT_AT }] {
        let (first, third) = (Origin::faulty(resource(), Moment::Transfer, fault), Origin::start(resource()));
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = format!("http://{}", silent.local_addr().unwrap()).parse::<OriginAddress>().unwrap();
        let mut pool = pool_with_stall_timeout();
        // It is asked before the third one.
        pool.origins = vec![origin(&first), OriginConfig { address: silent, weight: 100 }, origin(&third)];
        let fixture = Fixture::of(pool);
        assert_complete(&fixture).await;
        assert_moved(&fixture, &third, "stalled");
    }
}

#[tokio::test]
async fn after_a_refusal_the_next_origin_is_asked_without_delay() {
    let first = Origin::faulty(resource(), Moment::Transfer, Fault::Stall { after: CUT_AT });
    let second = Origin::faulty(resource(), Moment::Ranged, Fault::Status(404));
    let third = Origin::start(resource());
    let fixture = stall_fixture([first.url(), second.url(), third.url()]);
    assert_complete(&fixture).await;
    assert_moved(&fixture, &third, "stalled");
}

/// For any number of moves, the transfer ends.
#[tokio::test]
async fn where_all_origins_crawl_the_transfer_ends_visibly() {
    let crawl = |after| Fault::Crawl { after, every: STEP };
    let faults = vec![(Moment::Whole, crawl(CUT_AT)), (Moment::Ranged, crawl(0))];
    let crawl = || Origin::start_with(resource(), Manners { faults: faults.clone(), ..Manners::default() });
    for origins in [vec![crawl()], vec![crawl(), crawl()], vec![crawl(), crawl(), crawl()]] {
        let mut pool = pool_with_stall_timeout();
        let soon = Duration::from_secs(1);
        pool.limits = Limits { response_timeout: soon, body_timeout: soon, ..Limits::default() };
        pool.handover.as_mut().unwrap().governor.damping.stay_min = Duration::ZERO;
        let fixture = of(origins.iter().map(Origin::url), pool);
        let received = receive(get(&fixture, None).await).await;
        assert_eq!(received.error.as_deref(), Some("the origin sent its response too slowly"));
        assert_eq!(resource().content.difference(0, &received.bytes), None);
        assert!((received.bytes.len() as u64) < LEN);
    }
}

#[tokio::test]
async fn a_response_that_cannot_move_ends_visibly_when_its_origin_crawls() {
    let faults = vec![(Moment::Always, Fault::NoValidators), (Moment::Transfer, CRAWL)];
    let origin = Origin::start_with(resource(), Manners { faults, ..Manners::default() });
    let fixture = of([origin.url()], hasty_pool());
    let received = receive(get(&fixture, None).await).await;
    assert_eq!(received.error.as_deref(), Some("the origin sent its response too slowly"));
}

/// A stream of unknown length, such as server-sent events.
#[tokio::test]
async fn a_stream_of_unknown_length_may_crawl() {
    let faults = vec![(Moment::Transfer, Fault::Chunked), (Moment::Transfer, CRAWL)];
    let origin = Origin::start_with(resource(), Manners { faults, ..Manners::default() });
    let fixture = of([origin.url()], hasty_pool());
    let mut body = get(&fixture, None).await.into_body();
    let begun = Instant::now();
    while begun.elapsed() < 5 * hasty_pool().limits.body_timeout {
        timeout(WAIT_MAX, body.frame()).await.unwrap().unwrap().unwrap();
    }
}

const CRAWL: Fault = Fault::Crawl { after: 1000, every: STEP };

/// The timeout is five times as long as a pause of a slow origin.
fn hasty_pool() -> PoolConfig {
    let limits = Limits { body_timeout: Duration::from_millis(500), ..Limits::default() };
    PoolConfig { limits, ..PoolConfig::plain("pool", []) }
}

/// Relays bytes to an origin and back, each request after `delay`. Returns its URL.
async fn relay(to: SocketAddr, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_origin, mut to_origin) = TcpStream::connect(to).await.unwrap().into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from_origin, &mut to_client).await });
                let mut question = [0; 4096];
                while let Ok(len @ 1..) = from_client.read(&mut question).await {
                    sleep(delay).await;
                    to_origin.write_all(&question[..len]).await.unwrap();
                }
            });
        }
    });
    url
}
