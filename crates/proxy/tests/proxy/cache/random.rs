//! Random requests at random times, of content that changes, from a store that is too small: each response is of one
//! version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::timeout;

use super::origin::{Asked, CountingOrigin};
use super::{Cached, Got, pool};

const LIMIT: Duration = Duration::from_mins(1);
const LEN: usize = 700_000;
const CLIENTS: u64 = 16;
const REQUESTS: usize = 25;

fn content(version: u8) -> Bytes {
    (0..LEN).map(|index| (index / 100) as u8 ^ version).collect::<Vec<_>>().into()
}

/// Whether the response is what its head promises, or was cut.
fn is_right(got: &Got) -> bool {
    let Ok(body) = &got.body else { return true };
    let version: u8 = got.field("etag").trim_matches('"').parse().unwrap();
    let whole = content(version);
    match got.status() {
        200 => *body == whole,
        206 => {
            let range = got.field("content-range").strip_prefix("bytes ").unwrap().split_once('/').unwrap().0;
            let (first, last) = range.split_once('-').unwrap();
            *body == whole[first.parse().unwrap()..=last.parse::<usize>().unwrap()]
        }
        304 | 416 => body.is_empty(),
        status => panic!("status {status}"),
    }
}

#[tokio::test]
async fn every_response_is_of_one_version() {
    let seed: u64 = std::env::var("CACHE_SEED").map_or_else(|_| rand::rng().random(), |seed| seed.parse().unwrap());
    println!("CACHE_SEED={seed}");
    let version = Arc::new(AtomicU8::new(0));
    let current = version.clone();
    let origin = CountingOrigin::start(move |asked: Asked| {
        let version = current.load(Ordering::Relaxed);
        async move {
            let (etag, control) = (format!("\"{version}\""), ["max-age=60", "max-age=0"][asked.number % 2]);
            asked.answer_range(&etag, &format!("Cache-Control: {control}"), &content(version)).await;
        }
    })
    .await;
    let cached = Arc::new(Cached::with_memory(pool([origin.address.clone()]), 600_000, |_| {}).await);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (cached, version) = (cached.clone(), version.clone());
            tokio::spawn(async move {
                let mut rng = StdRng::seed_from_u64(seed ^ client);
                for _ in 0..REQUESTS {
                    let (first, len) = (rng.random_range(0..LEN), rng.random_range(1..400_000));
                    let range = format!("bytes={first}-{}", first + len);
                    let fields = [("range", range.as_str())];
                    let path = ["/a", "/b"][rng.random_range(0..2)];
                    let fields = if rng.random_bool(0.6) { &fields[..] } else { &[] };
                    let got = cached.get(path, fields).await;
                    assert!(is_right(&got), "{:?} {fields:?}", got.head);
                    if rng.random_bool(0.05) {
                        version.fetch_add(1, Ordering::Relaxed);
                    }
                    if rng.random_bool(0.05) {
                        cached.proxy.cache().get().unwrap().purge(watari_cache::Purge::Everything);
                    }
                }
            })
        })
        .collect();
    for client in clients {
        timeout(LIMIT, client).await.expect("in time").unwrap();
    }
}
