//! Requests for the same response, while it is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::origin::{Asked, CountingOrigin};
use super::{Cached, Got, get, pool};
use crate::common::pass;

const LIMIT: Duration = Duration::from_secs(20);
/// After this time, a request looks again whether a response is for others.
const LOOKS_AGAIN: Duration = Duration::from_secs(6);

#[tokio::test]
async fn many_clients_make_one_request() {
    let (arrived, go) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let (asked, begin) = (arrived.clone(), go.clone());
    let origin = CountingOrigin::start(move |request: Asked| {
        let (asked, begin) = (asked.clone(), begin.clone());
        async move {
            asked.add_permits(1);
            begin.notified().await;
            request.answer("200 OK\r\nCache-Control: max-age=60", b"content").await;
        }
    })
    .await;
    let cached = Arc::new(Cached::before(&origin).await);
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let cached = cached.clone();
            tokio::spawn(async move { cached.get("/", &[]).await.text().to_owned() })
        })
        .collect();
    let _asked = arrived.acquire().await.unwrap();
    go.notify_one();
    for client in clients {
        assert_eq!(timeout(LIMIT, client).await.unwrap().unwrap(), "content");
    }
    assert_eq!(origin.requests(), 1);
}

/// An origin that sends a head, and then a piece whenever it may.
async fn slow_origin(head: &'static str, piece: Vec<u8>, pieces: usize) -> (CountingOrigin, Arc<Semaphore>) {
    let may = Arc::new(Semaphore::new(0));
    let permits = may.clone();
    let origin = CountingOrigin::start(move |mut asked: Asked| {
        let (permits, piece) = (permits.clone(), piece.clone());
        async move {
            let _ = asked.socket.write_all(head.as_bytes()).await;
            for _ in 0..pieces {
                permits.acquire().await.unwrap().forget();
                if asked.socket.write_all(&piece).await.is_err() {
                    return;
                }
            }
            let _ = asked.socket.shutdown().await;
        }
    })
    .await;
    (origin, may)
}

#[tokio::test]
async fn clients_read_what_has_arrived() {
    for (head, name) in [
        ("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 3000000\r\n\r\n", "with a length"),
        ("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"v\"\r\nContent-Length: 3000000\r\n\r\n", "resumable"),
        ("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nConnection: close\r\n\r\n", "without a length"),
    ] {
        let (origin, may) = slow_origin(head, vec![b'x'; 1_000_000], 3).await;
        let cached = Cached::before(&origin).await;
        may.add_permits(1);
        let mut bodies = Vec::new();
        for _ in 0..3 {
            let mut body = timeout(LIMIT, cached.respond(get("/", &[]))).await.unwrap().into_body();
            let mut len = 0;
            while len < 1_000_000 {
                len += timeout(LIMIT, body.frame()).await.expect(name).unwrap().unwrap().into_data().unwrap().len();
            }
            bodies.push((body, len));
        }
        may.add_permits(2);
        for (body, len) in bodies {
            let rest = timeout(LIMIT, body.collect()).await.unwrap().unwrap().to_bytes();
            assert_eq!(len + rest.len(), 3_000_000, "{name}");
        }
        let hit = cached.get("/", &[]).await;
        assert_eq!((hit.body.unwrap().len(), origin.requests()), (3_000_000, 1), "{name}");
    }
}

#[tokio::test]
async fn a_fill_goes_on_without_the_client_that_began_it() {
    let (origin, may) = slow_origin(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 3000000\r\n\r\n",
        vec![b'x'; 1_000_000],
        3,
    )
    .await;
    let cached = Cached::before(&origin).await;
    may.add_permits(1);
    let first = timeout(LIMIT, cached.respond(get("/", &[]))).await.unwrap();
    let second = timeout(LIMIT, cached.respond(get("/", &[]))).await.unwrap();
    drop(first);
    may.add_permits(2);
    let second = timeout(LIMIT, Got::of(second)).await.unwrap();
    assert_eq!((second.body.unwrap().len(), origin.requests()), (3_000_000, 1));
}

#[tokio::test]
async fn a_follower_leads_if_the_first_client_leaves_before_the_answer() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        if asked.number == 1 {
            // Until the client leaves.
            std::future::pending::<()>().await;
        }
        asked.answer("200 OK\r\nCache-Control: max-age=60", b"content").await;
    })
    .await;
    let cached = Arc::new(Cached::before(&origin).await);
    let spawn = || {
        let cached = cached.clone();
        tokio::spawn(async move { cached.get("/", &[]).await.text().to_owned() })
    };
    let first = spawn();
    while origin.requests() == 0 {
        tokio::task::yield_now().await;
    }
    let second = spawn();
    tokio::task::yield_now().await;
    first.abort();
    assert_eq!(timeout(LIMIT, second).await.unwrap().unwrap(), "content");
    assert_eq!(origin.requests(), 2);
}

/// Clients that ask at the same time, for a response with these fields, all get responses of their own.
async fn check_each_asks(fields: &'static str, count: usize) {
    let origin = CountingOrigin::start(move |asked: Asked| async move {
        let content = asked.number.to_string();
        asked.answer(&format!("200 OK\r\nETag: \"{content}\"\r\n{fields}"), content.as_bytes()).await;
    })
    .await;
    let cached = Arc::new(Cached::before(&origin).await);
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let cached = cached.clone();
            tokio::spawn(async move { cached.get("/", &[]).await.text().to_owned() })
        })
        .collect();
    let mut contents = Vec::new();
    for client in clients {
        contents.push(timeout(LIMIT, client).await.unwrap().unwrap());
    }
    contents.sort_unstable();
    contents.dedup();
    assert_eq!((contents.len(), origin.requests()), (count, count), "{fields}");
}

#[tokio::test]
async fn followers_ask_themselves_if_a_response_is_private() {
    check_each_asks("Cache-Control: private", 20).await;
}

/// A queue before the origin would make each of them wait twice.
#[tokio::test]
async fn no_request_waits_for_the_one_that_looks_again_whether_a_response_is_private() {
    let (arrived, may) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (asked, permits) = (arrived.clone(), may.clone());
    let origin = CountingOrigin::start(move |request: Asked| {
        let (asked, permits) = (asked.clone(), permits.clone());
        async move {
            asked.add_permits(1);
            permits.acquire().await.unwrap().forget();
            request.answer("200 OK\r\nCache-Control: private", b"own").await;
        }
    })
    .await;
    let cached = Arc::new(Cached::before(&origin).await);
    may.add_permits(1);
    assert_eq!(timeout(LIMIT, cached.get("/", &[])).await.unwrap().text(), "own");
    pass(LOOKS_AGAIN).await;
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let cached = cached.clone();
            tokio::spawn(async move { cached.get("/", &[]).await.text().to_owned() })
        })
        .collect();
    let all = timeout(LIMIT, arrived.acquire_many(11)).await.expect("all ask before one is answered");
    drop(all);
    may.add_permits(10);
    for client in clients {
        assert_eq!(timeout(LIMIT, client).await.unwrap().unwrap(), "own");
    }
    assert_eq!(origin.requests(), 11);
}

/// Also after a response that was private. Requests wait for each other again while it is on its way.
#[tokio::test]
async fn a_response_that_is_not_private_any_more_is_stored() {
    let (private, may) = (Arc::new(AtomicBool::new(true)), Arc::new(Semaphore::new(0)));
    let (is_private, permits) = (private.clone(), may.clone());
    let origin = CountingOrigin::start(move |mut request: Asked| {
        let (is_private, permits) = (is_private.load(Ordering::SeqCst), permits.clone());
        async move {
            if is_private {
                return request.answer("200 OK\r\nCache-Control: private", b"content").await;
            }
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 7\r\n\r\n";
            let _ = request.socket.write_all(head.as_bytes()).await;
            permits.acquire().await.unwrap().forget();
            let _ = request.socket.write_all(b"content").await;
        }
    })
    .await;
    let cached = Cached::before(&origin).await;
    for _ in 0..2 {
        cached.get("/", &[]).await;
    }
    private.store(false, Ordering::SeqCst);
    pass(LOOKS_AGAIN).await;
    let mut responses = Vec::new();
    for _ in 0..2 {
        responses.push(timeout(LIMIT, cached.respond(get("/", &[]))).await.unwrap());
    }
    may.add_permits(1);
    for response in responses {
        assert_eq!(timeout(LIMIT, Got::of(response)).await.unwrap().text(), "content");
    }
    assert_eq!(cached.get("/", &[]).await.text(), "content");
    assert_eq!(origin.requests(), 3);
}

#[tokio::test]
async fn followers_of_variants_get_their_own() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        let language = asked.field("accept-language").unwrap().to_owned();
        asked.answer("200 OK\r\nCache-Control: max-age=60\r\nVary: Accept-Language", language.as_bytes()).await;
    })
    .await;
    let cached = Arc::new(Cached::before(&origin).await);
    let clients: Vec<_> = (0..40)
        .map(|number| {
            let (cached, language) = (cached.clone(), ["de", "en", "ja", "fr"][number % 4]);
            tokio::spawn(async move {
                let got = cached.get("/", &[("accept-language", language)]).await.text().to_owned();
                assert_eq!(got, language);
            })
        })
        .collect();
    for client in clients {
        timeout(LIMIT, client).await.unwrap().unwrap();
    }
    assert!(origin.requests() <= 8, "{} requests for 4 variants", origin.requests());
}

#[tokio::test]
async fn a_fill_that_dies_goes_on_at_another_origin() {
    let content: Arc<Vec<u8>> = Arc::new((0..2_000_000_u32).map(|number| (number / 7) as u8).collect());
    let (one, two) = (content.clone(), content.clone());
    let dying = CountingOrigin::start(move |mut asked: Asked| {
        let content = one.clone();
        async move {
            let head = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"v\"\r\nContent-Length: {}\r\n\r\n",
                content.len()
            );
            asked.socket.write_all(head.as_bytes()).await.unwrap();
            asked.socket.write_all(&content[..700_000]).await.unwrap();
        }
    })
    .await;
    let whole = CountingOrigin::start(move |asked: Asked| {
        let content = two.clone();
        async move { asked.answer_range("\"v\"", "Cache-Control: max-age=60", &content).await }
    })
    .await;
    let cached = Arc::new(Cached::with(pool([dying.address.clone(), whole.address.clone()]), |_| {}).await);
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let cached = cached.clone();
            tokio::spawn(async move { cached.get("/", &[]).await.body })
        })
        .collect();
    for client in clients {
        let body = timeout(LIMIT, client).await.unwrap().unwrap();
        assert!(body.is_ok_and(|body| body == content[..]), "each client gets the whole content");
    }
    assert!(dying.requests() + whole.requests() <= 4, "{} and {}", dying.requests(), whole.requests());
}

#[tokio::test]
async fn a_purge_reaches_a_response_on_its_way() {
    let (origin, may) =
        slow_origin("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\n", b"x".to_vec(), 2)
            .await;
    let cached = Cached::before(&origin).await;
    let first = timeout(LIMIT, cached.respond(get("/", &[]))).await.unwrap();
    cached.proxy.cache().get().unwrap().purge(watari_cache::Purge::Url("example.org/".into()));
    may.add_permits(4);
    assert_eq!(timeout(LIMIT, Got::of(first)).await.unwrap().text(), "xx");
    assert!(!timeout(LIMIT, cached.get("/", &[])).await.unwrap().is_hit());
    assert_eq!(origin.requests(), 2);
}

#[tokio::test]
async fn an_endless_response_is_relayed_and_not_stored() {
    let origin = CountingOrigin::start(|mut asked: Asked| async move {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nConnection: close\r\n\r\n";
        asked.socket.write_all(head.as_bytes()).await.unwrap();
        while asked.socket.write_all(&[b'x'; 16384]).await.is_ok() {}
    })
    .await;
    let cached = Cached::with(pool([origin.address.clone()]), |cache| cache.rules.object_bytes_max = 1 << 20).await;
    let mut body = cached.respond(get("/", &[])).await.into_body();
    let mut len = 0;
    while len < 64 << 20 {
        len += timeout(LIMIT, body.frame()).await.unwrap().unwrap().unwrap().into_data().unwrap().len();
    }
    drop(body);
    assert!(
        !timeout(LIMIT, cached.respond(get("/", &[]))).await.unwrap().headers()["cache-status"]
            .to_str()
            .unwrap()
            .contains("hit")
    );
}

#[tokio::test]
async fn a_cut_response_never_looks_complete_and_is_not_stored() {
    for head in [
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n",
    ] {
        let origin = CountingOrigin::start(move |mut asked: Asked| async move {
            asked.socket.write_all(head.as_bytes()).await.unwrap();
            asked.socket.write_all(b"part").await.unwrap();
        })
        .await;
        let cached = Cached::before(&origin).await;
        for number in 1..4 {
            let got = timeout(LIMIT, cached.get("/", &[])).await.unwrap();
            assert!(got.body.is_err(), "{got:?}");
            assert!(origin.requests() >= number);
        }
    }
}

/// A response that may not be used without validation is for the client that asked for it.
#[tokio::test]
async fn followers_ask_themselves_if_a_response_needs_validation() {
    for fields in ["Cache-Control: no-cache", "Cache-Control: max-age=0, must-revalidate"] {
        check_each_asks(fields, 10).await;
    }
}

const AGED: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nAge: 30\r\nContent-Length: 1\r\n\r\n";

/// A follower may want a fresher response than the one that it waited for.
#[tokio::test]
async fn a_follower_gets_only_what_it_accepts() {
    let (origin, answers) = slow_origin(AGED, b"x".to_vec(), 1).await;
    let cached = Arc::new(Cached::before(&origin).await);
    let ask = |fields: &'static [(&str, &str)]| {
        let cached = cached.clone();
        tokio::spawn(async move { cached.get("/", fields).await })
    };
    let (any, fresher) = (ask(&[]), ask(&[("cache-control", "max-age=10")]));
    answers.add_permits(100);
    assert_eq!(timeout(LIMIT, any).await.unwrap().unwrap().status(), 200);
    assert!(!timeout(LIMIT, fresher).await.unwrap().unwrap().is_hit());
    assert_eq!(origin.requests(), 2, "the second asked the origin itself");
}
