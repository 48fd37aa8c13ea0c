//! Transfers that continue at another origin, in the middle.

mod stalls;

use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use watari_body::Body;
use watari_proxy::{Config, Handover, Limits, OriginAddress, PoolConfig, Proxy, TransferStatus};
use watari_test_origins::{Case, Content, Fault, Moment, Origin, Resource, Verdict};

use crate::common::{Fixture, client};

const LEN: u64 = 300_000;
const CUT_AT: u64 = 100_000;
const WAIT_MAX: Duration = Duration::from_secs(20);

fn resource() -> Resource {
    Resource::new(Content::generated(1, LEN))
}

/// A pool of these origins, with a short timeout for stalls.
/// For origins that fail at once, or not at all. No pause of a busy machine is a stall.
fn fixture<'a>(origins: impl IntoIterator<Item = &'a Origin>) -> Fixture {
    fixture_with_timeout(Duration::from_mins(10), origins)
}

/// * `timeout`: the timeout for responses and for pauses. A stall is detected after a tenth of it.
fn fixture_with_timeout<'a>(timeout: Duration, origins: impl IntoIterator<Item = &'a Origin>) -> Fixture {
    let mut handover = Handover { length_min: 0, ..Handover::default() };
    handover.governor.stalled = Some(timeout / 10);
    let addresses = origins.into_iter().map(|origin| origin.url().parse().unwrap());
    let limits = Limits { response_timeout: timeout, body_timeout: timeout, ..Limits::default() };
    Fixture::of(PoolConfig { limits, handover: Some(handover), ..PoolConfig::plain("pool", addresses) })
}

async fn get(fixture: &Fixture, range: Option<&str>) -> Response<Body> {
    let mut request = Request::get("/file").header("host", "example.org");
    if let Some(range) = range {
        request = request.header("range", range);
    }
    fixture.proxy.respond(request.body(Empty::<bytes::Bytes>::new()).unwrap(), &client()).await
}

/// The bytes of a body, and its error.
struct Received {
    bytes: Vec<u8>,
    error: Option<String>,
}

async fn receive(response: Response<Body>) -> Received {
    let mut received = Received { bytes: Vec::new(), error: None };
    let mut body = response.into_body();
    while let Some(frame) = timeout(WAIT_MAX, body.frame()).await.expect("it comes to an end") {
        match frame {
            Ok(frame) => received.bytes.extend_from_slice(frame.data_ref().unwrap()),
            Err(error) => {
                received.error = Some(error.to_string());
                break;
            }
        }
    }
    received
}

fn transfers(fixture: &Fixture) -> Vec<TransferStatus> {
    fixture.proxy.status().remove(0).transfers
}

async fn until(mut what: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !what() {
        assert!(Instant::now() < deadline, "in vain");
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_transfer_goes_on_where_its_origin_died() {
    let first = Origin::faulty(resource(), Moment::Transfer, Fault::Death { after: CUT_AT });
    let second = Origin::start(resource());
    let fixture = fixture([&first, &second]);
    let response = get(&fixture, None).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-length"], "300000");
    let received = receive(response).await;
    assert_eq!((received.error, received.bytes.len() as u64), (None, LEN));
    assert_eq!(resource().content.difference(0, &received.bytes), None);
    let requests = second.requests();
    let asked = requests.iter().find(|asked| !asked.is_probe()).unwrap();
    assert_eq!(asked.field("range"), Some(format!("bytes={}-{}", CUT_AT - 4096, LEN - 1).as_str()));
    assert_eq!((asked.field("if-range"), asked.field("accept-encoding")), (Some("\"v1\""), Some("identity")));
    fixture.assert_metric(&format!(
        "watari_proxy_handovers_total{{pool=\"pool\",to=\"{}\",cause=\"failed\"}} 1",
        second.url()
    ));
}

#[tokio::test]
async fn each_bad_origin_gets_what_is_due() {
    let cases: Vec<_> = Case::ALL.iter().flat_map(|case| [(case, true), (case, false)]).collect();
    // Some wait for most of their time.
    for some in cases.chunks(12) {
        let mut running = JoinSet::new();
        for (case, helped) in some {
            running.spawn(judge(case, *helped));
        }
        running.join_all().await;
    }
}

/// `helped`: a good origin follows the faulty one.
async fn judge(case: &Case, helped: bool) {
    let stage = case.stage(&resource(), Fault::Death { after: CUT_AT });
    let third = Origin::start(resource());
    // An origin that refuses does so at once. The time until the first one ends depends on the machine.
    let timeout = Duration::from_secs(if case.verdict == Verdict::Refused { 60 } else { 2 });
    let origins = [&stage.first, &stage.second].into_iter().chain(helped.then_some(&third));
    let fixture = fixture_with_timeout(timeout, origins);
    let response = get(&fixture, None).await;
    assert_eq!(response.status(), 200);
    let coded = response.headers().contains_key("content-encoding");
    let received = receive(response).await;
    let (name, len) = (case.name, received.bytes.len() as u64);
    let difference = if coded { None } else { resource().content.difference(0, &received.bytes) };
    match (case.verdict, helped) {
        (Verdict::Continues | Verdict::Refused, true) => {
            assert_eq!((received.error, len, difference), (None, LEN, None), "{name}");
        }
        (Verdict::Refused, false) => {
            assert_eq!((len, difference), (CUT_AT, None), "{name}");
            assert!(received.error.is_some(), "{name}");
        }
        (Verdict::Continues, false) => {
            assert_eq!(difference, None, "{name}");
            assert!(len == LEN || received.error.is_some(), "{name}: {len} bytes");
        }
        (Verdict::Incomplete, _) => assert!(received.error.is_some() && difference.is_none(), "{name}"),
        (Verdict::Undetectable, _) => {}
    }
}

#[tokio::test]
async fn a_range_that_the_client_asked_for_goes_on() {
    for (range, expected) in [("bytes=1000-200999", 1000..201_000), ("bytes=150000-", 150_000..LEN)] {
        let first = Origin::faulty(resource(), Moment::Transfer, Fault::Reset { after: CUT_AT });
        let second = Origin::start(resource());
        let fixture = fixture([&first, &second]);
        let response = get(&fixture, Some(range)).await;
        assert_eq!(response.status(), 206);
        let received = receive(response).await;
        assert_eq!((received.error, received.bytes.len() as u64), (None, expected.end - expected.start), "{range}");
        assert_eq!(resource().content.difference(expected.start, &received.bytes), None, "{range}");
    }
}

/// Around the overlap, and around the buffers of all parts on the way.
#[tokio::test]
async fn it_does_not_matter_where_an_origin_ends() {
    let edges = [0, 1, 4095, 4096, 4097, 8191, 8192, 16_384, 65_535, 65_536, 131_071, 131_072, LEN - 1];
    for after in edges {
        for fault in [Fault::Reset { after }, Fault::Fin { after }] {
            let first = Origin::faulty(resource(), Moment::Transfer, fault);
            let second = Origin::start(resource());
            let fixture = fixture([&first, &second]);
            let received = receive(get(&fixture, None).await).await;
            assert_eq!((received.error, received.bytes.len() as u64), (None, LEN), "{fault:?}");
            assert_eq!(resource().content.difference(0, &received.bytes), None, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn it_is_known_beforehand_where_a_transfer_could_go_on() {
    let first = Origin::start(resource());
    let same = Origin::start(resource());
    let other = Origin::start(resource().replaced(LEN));
    let whole = Origin::faulty(resource(), Moment::Always, Fault::NoRanges);
    let fixture = fixture([&first, &same, &other, &whole]);
    receive(get(&fixture, None).await).await;
    let known = || fixture.proxy.status().remove(0).resources;
    until(|| known().first().is_some_and(|resource| resource.elsewhere.len() == 3)).await;
    let resource = known().remove(0);
    assert_eq!((resource.resource.as_str(), resource.stays), ("example.org/file", None));
    for (origin, expected) in [(&same, None), (&other, Some("whole")), (&whole, Some("whole"))] {
        let found = resource.elsewhere.iter().find(|(address, _)| address.to_string() == origin.url());
        assert_eq!(found.unwrap().1, expected, "{found:?}");
    }
    // Not again so soon.
    receive(get(&fixture, None).await).await;
    assert!(same.requests().iter().filter(|asked| asked.is_probe()).count() <= 1);
}

/// The origin first had the same content, and later other content.
#[tokio::test]
async fn what_was_known_beforehand_is_corrected() {
    let first = Origin::faulty(resource(), Moment::Whole, Fault::Reset { after: CUT_AT });
    let second = Origin::start(resource());
    let fixture = fixture([&first, &second]);
    let known = || {
        let resource = fixture.proxy.status().remove(0).resources.into_iter().next();
        let of_second = |(address, _): &(OriginAddress, _)| address.to_string() == second.url();
        resource.and_then(|resource| resource.elsewhere.into_iter().find(of_second)).map(|(_, refusal)| refusal)
    };
    receive(get(&fixture, None).await).await;
    until(|| known() == Some(None)).await;
    second.replace(resource().replaced(LEN));
    // Each begins a comparison.
    for _ in 0..2 {
        receive(get(&fixture, None).await).await;
    }
    assert_eq!(known(), Some(Some("whole")));
}

#[tokio::test]
async fn the_only_origin_is_asked_again() {
    let origin = Origin::faulty(resource(), Moment::Whole, Fault::Reset { after: CUT_AT });
    let fixture = fixture([&origin]);
    let received = receive(get(&fixture, None).await).await;
    assert_eq!((received.error, received.bytes.len() as u64), (None, LEN));
    assert_eq!(resource().content.difference(0, &received.bytes), None);
}

#[tokio::test]
async fn a_transfer_moves_by_order_from_one_good_origin_to_the_other() {
    let len = 64 << 20;
    let resource = Resource::new(Content::generated(2, len));
    let (first, second) = (Origin::start(resource.clone()), Origin::start(resource.clone()));
    let fixture = fixture([&first, &second]);
    let mut body = get(&fixture, None).await.into_body();
    let (mut at, mut moves) = (0, 0);
    while let Some(frame) = timeout(WAIT_MAX, body.frame()).await.unwrap() {
        let piece = frame.unwrap().into_data().unwrap();
        assert_eq!(resource.content.difference(at, &piece), None);
        at += piece.len() as u64;
        // Three moves, at any position.
        if at > (moves + 1) * (len / 4) && at < len {
            let [transfer] = &transfers(&fixture)[..] else { panic!("one is running") };
            if u64::from(transfer.moves) == moves {
                fixture.proxy.move_transfer(transfer.id, None).ok();
                // A busy machine gets time to move before the content ends.
                sleep(Duration::from_millis(10)).await;
            } else {
                moves += 1;
            }
        }
    }
    assert_eq!((at, moves), (len, 3));
}

#[tokio::test]
async fn a_draining_origin_is_left() {
    let resource = Resource::new(Content::generated(3, 64 << 20));
    let (first, second) = (Origin::start(resource.clone()), Origin::start(resource.clone()));
    let fixture = fixture([&first, &second]);
    let mut body = get(&fixture, None).await.into_body();
    let beginning = body.frame().await.unwrap().unwrap().into_data().unwrap();
    fixture.proxy.drain(&first.url().parse().unwrap(), true).unwrap();
    let mut received = beginning.to_vec();
    while let Some(frame) = timeout(WAIT_MAX, body.frame()).await.unwrap() {
        received.extend_from_slice(frame.unwrap().data_ref().unwrap());
        if second.requests().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(received.len() as u64, resource.content.len());
    assert_eq!(resource.content.difference(0, &received), None);
    assert!(!second.requests().is_empty());
    drop(body);
    for _ in 0..4 {
        receive(get(&fixture, Some("bytes=0-9")).await).await;
    }
    assert_eq!(first.requests().len(), 1, "nothing new goes there");
    until(|| transfers(&fixture).is_empty()).await;
}

#[tokio::test]
async fn a_reload_forgets_no_transfer() {
    let resource = Resource::new(Content::generated(4, 64 << 20));
    let (first, second) = (Origin::start(resource.clone()), Origin::start(resource.clone()));
    let fixture = fixture([&first, &second]);
    let mut body = get(&fixture, None).await.into_body();
    let mut received = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    let pool = PoolConfig::plain("pool", [&first, &second].map(|origin| origin.url().parse().unwrap()));
    let mut proxy = Proxy::succeed(Config::one_pool(pool.clone()), &fixture.proxy, |_| false).unwrap();
    proxy = Proxy::succeed(Config::one_pool(pool), &proxy, |_| false).unwrap();
    let moves = || proxy.status().iter().flat_map(|pool| &pool.transfers).map(|transfer| transfer.moves).next();
    assert_eq!(moves(), Some(0));
    proxy.drain(&first.url().parse().unwrap(), true).unwrap();
    while let Some(frame) = timeout(WAIT_MAX, body.frame()).await.unwrap() {
        received.extend_from_slice(frame.unwrap().data_ref().unwrap());
        if moves() == Some(0) {
            sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(resource.content.difference(0, &received), None);
    assert!(second.requests().iter().any(|asked| !asked.is_probe()), "it has moved");
    drop(body);
    until(|| proxy.status().len() == 1).await;
}
