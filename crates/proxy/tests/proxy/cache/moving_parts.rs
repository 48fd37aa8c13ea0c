//! Partial entries: what is missing is requested by range.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::origin::{Asked, CountingOrigin};
use super::{Cached, pool};

const LIMIT: Duration = Duration::from_secs(20);
const LEN: usize = 1_000_000;

fn content(version: u8) -> Vec<u8> {
    (0..LEN).map(|index| (index / 1000) as u8 ^ version).collect()
}

/// An origin with ranges. `versions` has the version of the content for each request, and then the last one.
async fn origin(versions: &'static [u8]) -> CountingOrigin {
    CountingOrigin::start(move |asked: Asked| async move {
        let version = *versions.get(asked.number - 1).or(versions.last()).unwrap();
        let etag = format!("\"{version}\"");
        asked.answer_range(&etag, "Cache-Control: max-age=60", &content(version)).await;
    })
    .await
}

#[tokio::test]
async fn parts_are_stored_and_joined() {
    let origin = origin(&[1]).await;
    let cached = Cached::before(&origin).await;
    let part = cached.get("/", &[("range", "bytes=300000-300009")]).await;
    assert_eq!((part.status(), part.field("content-range")), (206, "bytes 300000-300009/1000000"));
    assert_eq!(part.body.unwrap(), content(1)[300_000..300_010]);
    assert_eq!(origin.requests(), 1);
    // Of the same piece.
    let again = cached.get("/", &[("range", "bytes=262144-262150")]).await;
    assert!(again.is_hit(), "{again:?}");
    assert_eq!((again.body.unwrap(), origin.requests()), (content(1)[262_144..262_151].to_vec().into(), 1));
    let whole = timeout(LIMIT, cached.get("/", &[])).await.unwrap();
    assert_eq!((whole.status(), whole.field("content-length")), (200, "1000000"));
    assert_eq!(whole.body.unwrap(), content(1));
    let requests = origin.requests();
    assert!(requests <= 3, "before and after the stored piece: {requests}");
    assert_eq!(cached.get("/", &[]).await.body.unwrap(), content(1));
    assert_eq!(origin.requests(), requests);
}

#[tokio::test]
async fn parts_of_another_version_are_never_joined() {
    let origin = origin(&[1, 2]).await;
    let cached = Cached::before(&origin).await;
    let part = cached.get("/", &[("range", "bytes=300000-300009")]).await;
    assert_eq!(part.body.unwrap(), content(1)[300_000..300_010]);
    // The rest is gone: the response is cut, and not completed with other bytes.
    let whole = timeout(LIMIT, cached.get("/", &[])).await.unwrap();
    assert!(whole.body.is_err(), "a response of two versions");
    let next = timeout(LIMIT, cached.get("/", &[])).await.unwrap();
    assert_eq!((next.body.unwrap(), next.head.headers["etag"].to_str().unwrap()), (content(2).into(), "\"2\""));
}

#[tokio::test]
async fn a_range_can_fetch_the_whole() {
    let origin = origin(&[1]).await;
    let cached = Cached::with(pool([origin.address.clone()]), |cache| cache.rules.whole_on_range = true).await;
    let part = timeout(LIMIT, cached.get("/", &[("range", "bytes=300000-300009")])).await.unwrap();
    assert_eq!((part.status(), part.body.unwrap()), (206, content(1)[300_000..300_010].to_vec().into()));
    let whole = timeout(LIMIT, cached.get("/", &[])).await.unwrap();
    assert_eq!((whole.body.unwrap(), origin.requests()), (content(1).into(), 1));
}

#[tokio::test]
async fn an_origin_without_ranges_answers_a_range_with_the_whole() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        asked.answer("200 OK\r\nCache-Control: max-age=60\r\nETag: \"v\"", &content(1)).await;
    })
    .await;
    let cached = Cached::before(&origin).await;
    for range in ["bytes=300000-300009", "bytes=-10", "bytes=999990-"] {
        let part = timeout(LIMIT, cached.get("/", &[("range", range)])).await.unwrap();
        assert_eq!((part.status(), part.body.unwrap().len()), (206, 10), "{range}");
    }
    assert_eq!(origin.requests(), 1);
}

#[tokio::test]
async fn parts_without_a_strong_validator_are_not_stored() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        asked.answer_range("W/\"1\"", "Cache-Control: max-age=60", &content(1)).await;
    })
    .await;
    let cached = Cached::before(&origin).await;
    for _ in 0..3 {
        let part = timeout(LIMIT, cached.get("/", &[("range", "bytes=300000-300009")])).await.unwrap();
        assert_eq!((part.status(), part.field("content-range")), (206, "bytes 300000-300009/1000000"));
        assert_eq!(part.body.unwrap(), content(1)[300_000..300_010]);
    }
}

/// A store with room for one piece in four: pieces come from the origin again, and the content is always right.
#[tokio::test]
async fn content_larger_than_the_store_is_correct() {
    let origin = origin(&[1]).await;
    let cached = Arc::new(Cached::with_memory(pool([origin.address.clone()]), 300_000, |_| {}).await);
    for _ in 0..3 {
        let whole = timeout(LIMIT, cached.get("/", &[])).await.unwrap();
        assert_eq!(whole.body.unwrap(), content(1));
    }
}

/// Parts that do not say what they are, or are not what was asked for.
#[tokio::test]
async fn a_part_with_a_wrong_range_is_not_stored() {
    for range in ["bytes 0-9/5", "bytes 5-2/100", "bytes 0-8/100", "bytes x-9/100", "bytes 0-9/18446744073709551616"] {
        let head: &'static str =
            format!("206 Partial Content\r\nCache-Control: max-age=60\r\nETag: \"1\"\r\nContent-Range: {range}").leak();
        let origin = CountingOrigin::fixed(head, "0123456789").await;
        let cached = Cached::before(&origin).await;
        for _ in 0..2 {
            let got = cached.get("/", &[("range", "bytes=0-9")]).await;
            assert!(!got.is_hit(), "{range}: {got:?}");
        }
        assert!(origin.requests() >= 2, "{range}");
    }
}

/// `If-Range` with another version asks for the whole.
#[tokio::test]
async fn a_range_of_another_version_gets_the_whole() {
    let origin = origin(&[1]).await;
    let cached = Cached::before(&origin).await;
    let fields = [("range", "bytes=300000-300009"), ("if-range", "\"0\"")];
    for _ in 0..2 {
        let got = timeout(LIMIT, cached.get("/", &fields)).await.unwrap();
        assert_eq!((got.status(), got.body.unwrap()), (200, content(1).into()));
    }
}

/// Pieces are shared by all clients. The origin gets the range of the client if it does not answer that of pieces.
#[tokio::test]
async fn a_range_at_the_end_is_that_of_the_client() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        match asked.field("range") {
            Some("bytes=90-") => {
                let head = "206 Partial Content\r\nETag: \"1\"\r\nContent-Range: bytes 90-99/100";
                asked.answer(head, b"0123456789").await;
            }
            _ => asked.answer("416 Range Not Satisfiable\r\nContent-Range: bytes */100", b"").await,
        }
    })
    .await;
    let cached = Cached::before(&origin).await;
    let got = cached.get("/", &[("range", "bytes=90-")]).await;
    assert_eq!((got.status(), got.text(), got.field("content-range")), (206, "0123456789", "bytes 90-99/100"));
}
