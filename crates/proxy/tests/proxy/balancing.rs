//! The selection of an origin for a request, and of another one after a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::Empty;
use tokio::time::{Instant, sleep, timeout};
use watari_balance::{OriginPolicy, OutlierLimits, RetryLimits};
use watari_proxy::{Balance, HashKey, Limits, OriginAddress, OriginConfig, PoolConfig, RetryOn};

use crate::common::{
    Act, Fixture, ScriptedOrigin, answer, answer_and_close, answer_and_stall, client, get, ok, pass, post, read,
    refusing_origin,
};

const WAIT_MAX: Duration = Duration::from_secs(20);
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
/// The head of a response whose body never arrives.
const BEGUN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";

/// An origin that always responds with its name.
async fn origin(name: &str) -> ScriptedOrigin {
    ScriptedOrigin::start(vec![ok(name); 400]).await
}

fn balance(policy: OriginPolicy) -> Balance {
    Balance { policy, ..Balance::default() }
}

fn fixture(origins: impl IntoIterator<Item = (OriginAddress, u32)>, balance: Balance) -> Fixture {
    let origins = origins.into_iter().map(|(address, weight)| OriginConfig { address, weight });
    // The origins here have one connection at a time.
    let limits = Limits { idle_max: 0, ..Limits::default() };
    Fixture::of(PoolConfig { origins: origins.collect(), balance, limits, ..PoolConfig::plain("pool", []) })
}

fn even<'a>(origins: impl IntoIterator<Item = &'a ScriptedOrigin>, balance: Balance) -> Fixture {
    fixture(origins.into_iter().map(|origin| (origin.address.clone(), 1)), balance)
}

async fn get_path(fixture: &Fixture, path: &str) -> String {
    let request = Request::get(path).header("host", "example.org").body(Empty::<bytes::Bytes>::new()).unwrap();
    read(fixture.proxy.respond(request, &client()).await).await.1.unwrap()
}

/// The number of responses of each origin to `requests` sequential requests.
async fn shares(fixture: &Fixture, requests: usize) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for _ in 0..requests {
        *shares.entry(fixture.get().await.1.unwrap()).or_default() += 1;
    }
    shares
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}

#[tokio::test]
async fn weights_say_how_much_an_origin_gets() {
    let origins = [origin("a").await, origin("b").await];
    let weighed = |policy| {
        let [a, b] = &origins;
        fixture([(a.address.clone(), 3), (b.address.clone(), 1)], balance(policy))
    };
    assert_eq!(shares(&weighed(OriginPolicy::Weighted), 100).await, counts([("a", 75), ("b", 25)]));
    assert_eq!(shares(&weighed(OriginPolicy::RoundRobin), 100).await, counts([("a", 50), ("b", 50)]));
}

#[tokio::test]
async fn the_origin_with_the_fewest_requests_gets_the_next() {
    let busy = ScriptedOrigin::start([answer_and_stall(BEGUN)]).await;
    let idle = origin("idle").await;
    let fixture = even([&busy, &idle], balance(OriginPolicy::LeastConnections));
    let held = fixture.respond(get()).await;
    assert_eq!(shares(&fixture, 20).await, counts([("idle", 20)]));
    drop(held);
}

#[tokio::test]
async fn two_choices_avoid_an_origin_that_does_not_answer() {
    let mut silent = ScriptedOrigin::start([Act::Ignore]).await;
    let quick = origin("quick").await;
    let fixture = Arc::new(even([&silent, &quick], balance(OriginPolicy::TwoChoices)));
    let asking = Arc::clone(&fixture);
    let waiting = tokio::spawn(async move {
        loop {
            let _ = asking.get().await;
        }
    });
    timeout(WAIT_MAX, silent.request()).await.expect("it is drawn as often as the other");
    assert_eq!(shares(&fixture, 40).await, counts([("quick", 40)]));
    waiting.abort();
}

#[tokio::test]
async fn a_key_belongs_to_an_origin() {
    let origins = [origin("a").await, origin("b").await, origin("c").await];
    let hash = balance(OriginPolicy::Hash);
    let (all, two) = (even(&origins, hash.clone()), even(&origins[..2], hash.clone()));
    let mut moved = BTreeSet::new();
    for n in 0..60 {
        let path = format!("/{n}");
        let with_all = get_path(&all, &path).await;
        assert_eq!(get_path(&all, &format!("{path}?query")).await, with_all);
        if get_path(&two, &path).await != with_all {
            moved.insert(with_all);
        }
    }
    assert_eq!(moved, BTreeSet::from(["c".to_owned()]), "only who belonged to the one that is gone is moved");
    let by_client = even(&origins, Balance { hash_key: HashKey::Client, ..hash });
    assert_eq!(shares(&by_client, 20).await.len(), 1);
}

#[tokio::test]
async fn an_origin_that_fails_requests_is_ejected_and_comes_back() {
    let failing = ScriptedOrigin::start(std::iter::repeat_n(answer(UNAVAILABLE), 3).chain(vec![ok("back"); 400])).await;
    let good = origin("good").await;
    let ejection = Duration::from_millis(200);
    let outliers = OutlierLimits { in_a_row: 3, ejection, ..OutlierLimits::default() };
    let fixture = even([&failing, &good], Balance { outliers, ..Balance::default() });
    for _ in 0..6 {
        let _ = fixture.get().await;
    }
    let (pool, origin) = ("pool=\"pool\"", format!("origin=\"{}\"", failing.address));
    fixture.assert_metric(&format!("watari_proxy_origin_healthy{{{pool},{origin}}} 0"));
    fixture.assert_metric(&format!("watari_proxy_origin_ejections_total{{{pool},{origin},cause=\"in_a_row\"}} 1"));
    let deadline = Instant::now() + WAIT_MAX;
    while fixture.get().await.1.unwrap() != "back" {
        assert!(Instant::now() < deadline, "it never comes back");
        sleep(Duration::from_millis(2)).await;
    }
    fixture.assert_metric(&format!("watari_proxy_origin_healthy{{{pool},{origin}}} 1"));
    assert_eq!(shares(&fixture, 20).await, counts([("back", 10), ("good", 10)]));
}

#[tokio::test]
async fn an_origin_that_comes_back_gets_its_share_by_and_by() {
    let failing = ScriptedOrigin::start([answer(UNAVAILABLE)].into_iter().chain(vec![ok("back"); 400])).await;
    let good = origin("good").await;
    let outliers = OutlierLimits { in_a_row: 1, ejection: Duration::from_hours(1), ..OutlierLimits::default() };
    let slow_start = Some(Duration::from_hours(1));
    let fixture = even([&failing, &good], Balance { outliers, slow_start, ..Balance::default() });
    assert_eq!(BTreeSet::from([fixture.get().await.0, fixture.get().await.0]), BTreeSet::from([200, 503]));
    assert_eq!(shares(&fixture, 20).await, counts([("good", 20)]));
    pass(Duration::from_hours(2)).await;
    while fixture.get().await.1.unwrap() != "back" {}
    assert!(shares(&fixture, 90).await.get("back").is_none_or(|share| *share <= 1), "as good as nothing at first");
    pass(Duration::from_mins(30)).await;
    let half = shares(&fixture, 90).await["back"];
    assert!((29..=31).contains(&half), "half as much as the other, not {half} of 90");
    pass(Duration::from_mins(30)).await;
    assert_eq!(shares(&fixture, 90).await, counts([("back", 45), ("good", 45)]));
}

#[tokio::test]
async fn bodies_cut_short_eject() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ncut";
    let failing = ScriptedOrigin::start(vec![answer_and_close(cut); 10]).await;
    let good = origin("good").await;
    let outliers = OutlierLimits { in_a_row: 2, ..OutlierLimits::default() };
    let fixture = even([&failing, &good], Balance { outliers, ..Balance::default() });
    let mut cut = 0;
    for _ in 0..20 {
        cut += usize::from(fixture.get().await.1.is_err());
    }
    assert_eq!(cut, 2);
}

#[tokio::test]
async fn where_all_are_ejected_all_are_tried() {
    let a = ScriptedOrigin::start([answer(UNAVAILABLE), ok("a")]).await;
    let outliers = OutlierLimits { in_a_row: 1, ..OutlierLimits::default() };
    let fixture = even([&a], Balance { outliers, ..Balance::default() });
    assert_eq!(fixture.get().await.0, 503);
    assert_eq!(fixture.get().await, (200, Ok("a".to_owned())));
}

#[tokio::test]
async fn a_reset_sends_what_can_be_repeated_elsewhere() {
    let resets = || ScriptedOrigin::start(vec![answer_and_close(""); 4]);
    let good = origin("good").await;
    let fixture = even([&resets().await, &good], Balance::default());
    assert_eq!(fixture.get().await, (200, Ok("good".to_owned())));
    fixture.assert_metric("watari_proxy_retries_total{pool=\"pool\"} 1");
    let posting = even([&resets().await, &good], Balance::default());
    assert_eq!(posting.respond(post("body")).await.status(), 502);
    let not_set = even([&resets().await, &good], Balance { retry_on: BTreeSet::new(), ..Balance::default() });
    assert_eq!(not_set.get().await.0, 502);
}

#[tokio::test]
async fn statuses_are_retried_where_that_is_set() {
    let unavailable = || ScriptedOrigin::start(vec![answer(UNAVAILABLE); 4]);
    let good = origin("good").await;
    let named = Balance { retry_on: BTreeSet::from([RetryOn::Unavailable]), ..Balance::default() };
    let fixture = even([&unavailable().await, &good], named.clone());
    assert_eq!(fixture.get().await, (200, Ok("good".to_owned())));
    let fixture = even([&unavailable().await, &good], Balance::default());
    assert_eq!(fixture.get().await.0, 503);
    let fixture = even([&unavailable().await, &unavailable().await], named);
    assert_eq!(fixture.get().await.0, 503, "the last answer is the client's");
}

#[tokio::test]
async fn retries_have_a_budget() {
    let (away, _socket) = refusing_origin();
    let good = origin("good").await;
    let retries = RetryLimits { window: Duration::from_hours(1), percent: 10, per_s: 0 };
    let outliers = OutlierLimits { in_a_row: 0, excess_percent: 100, ..OutlierLimits::default() };
    let balance = Balance { retries, outliers, ..Balance::default() };
    let fixture = fixture([(away, 1), (good.address.clone(), 1)], balance);
    let mut answers = BTreeMap::new();
    for _ in 0..100 {
        *answers.entry(fixture.get().await.0).or_insert(0) += 1;
    }
    assert_eq!(answers, BTreeMap::from([(200, 59), (502, 41)]), "of 50 that met the one away, 9 were retried");
}

#[tokio::test]
async fn what_an_origin_has_no_room_for_goes_to_another() {
    let busy = ScriptedOrigin::start([answer_and_stall(BEGUN)]).await;
    let other = origin("other").await;
    let limits = Limits { in_flight_max: 1, attempts_max: 1, ..Limits::default() };
    let addresses = [busy.address.clone(), other.address.clone()];
    let fixture = Fixture::new(addresses, limits);
    let held = fixture.respond(get()).await;
    assert_eq!(shares(&fixture, 4).await, counts([("other", 4)]));
    drop(held);
}
