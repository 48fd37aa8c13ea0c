//! Several agents, of which each key has one as its owner.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use watari_body::BoxedRequest;
use watari_cache::{Key, Purge, PurgeId};
use watari_proxy::{AgentStream, Client, KnownPurges, NextOwners, Owners, Proxy, ResponseCache, RouteCache};
use watari_values::NodeName;

use super::origin::{Asked, CountingOrigin};
use super::{Cached, Got, get, pool};
use crate::common::client;

const LIMIT: Duration = Duration::from_secs(20);

/// The agents of a cluster, each with a proxy.
#[derive(Default)]
struct Agents {
    proxies: [OnceLock<Proxy>; 3],
    is_down: AtomicBool,
    /// Each agent takes the next one for the owner of all keys.
    disagree: AtomicBool,
    connections: AtomicUsize,
}

/// The agents as one of them, by its number, has them.
struct Linked(usize, Arc<Agents>);

impl Owners for Linked {
    fn owner(&self, key: &Key, is_away: &dyn Fn(&NodeName) -> bool) -> Option<NodeName> {
        let is_other = self.1.disagree.load(Ordering::Relaxed);
        let owner = if is_other { self.0 + 1 } else { usize::from(key.0[0]) } % 3;
        Some(name(owner)).filter(|agent| owner != self.0 && !is_away(agent))
    }

    fn next_owners(&self) -> NextOwners {
        let number = self.0;
        Box::new(move |key| (usize::from(key.0[0]) % 3 == number).then(|| name((number + 1) % 3)))
    }

    fn connect(&self, agent: &NodeName) -> Pin<Box<dyn Future<Output = io::Result<AgentStream>> + Send + '_>> {
        let number = (0..3).find(|number| name(*number) == *agent).unwrap();
        Box::pin(async move {
            let agents = self.1.clone();
            agents.connections.fetch_add(1, Ordering::Relaxed);
            if agents.is_down.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                let answer = service_fn(|request: http::Request<Incoming>| {
                    let (agents, request) = (agents.clone(), BoxedRequest::from(request));
                    async move {
                        let proxy = agents.proxies[number].get().unwrap();
                        Ok::<_, io::Error>(proxy.respond_to_agent(request).await)
                    }
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), answer).await;
            });
            Ok(Box::new(ours) as AgentStream)
        })
    }
}

fn name(number: usize) -> NodeName {
    NodeName::new(&format!("a{number}")).unwrap()
}

/// Three agents in front of the origin. `change` gets the number of each.
async fn agents(origin: &CountingOrigin, change: impl Fn(usize, &mut RouteCache)) -> Arc<Agents> {
    let agents = Arc::<Agents>::default();
    for number in 0..3 {
        let cached = Cached::with(pool([origin.address.clone()]), |cache| {
            cache.is_shared = true;
            change(number, cache);
        })
        .await;
        cached.proxy.cache().get().unwrap().share_with(Linked(number, agents.clone()));
        agents.proxies[number].set(cached.proxy).unwrap();
    }
    agents
}

/// Agent 0 has responses, of which it owns a part. The origin answers for as long as the test runs.
async fn filled(change: impl Fn(usize, &mut RouteCache)) -> Arc<Agents> {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "content N").await;
    let agents = agents(&origin, change).await;
    for number in 0..30 {
        agents.get(0, &format!("/{number}")).await;
    }
    agents
}

impl Agents {
    async fn respond(&self, number: usize, path: &str) -> Response<watari_body::Body> {
        self.proxies[number].get().unwrap().respond(get(path, &[]), &client()).await
    }

    fn cache(&self, number: usize) -> &Arc<ResponseCache> {
        self.proxies[number].get().unwrap().cache().get().unwrap()
    }

    async fn get(&self, number: usize, path: &str) -> Got {
        timeout(LIMIT, async { Got::of(self.respond(number, path).await).await }).await.unwrap()
    }
}

#[tokio::test]
async fn clients_of_three_agents_make_one_request() {
    let head = "200 OK\r\nCache-Control: max-age=60\r\nCache-Status: origin; hit";
    let origin = CountingOrigin::fixed(head, "content N").await;
    let agents = agents(&origin, |_, _| {}).await;
    for path in 0..20 {
        let path = format!("/{path}");
        let [first, second, third] = [0, 1, 2].map(|number| agents.get(number, &path));
        let (first, second, third) = tokio::join!(first, second, third);
        assert_eq!((first.text(), second.text()), (third.text(), third.text()));
    }
    assert_eq!(origin.requests(), 20);
    let before = agents.connections.load(Ordering::Relaxed);
    for path in 0..20 {
        for number in 0..3 {
            let got = agents.get(number, &format!("/{path}")).await;
            assert!(got.is_hit(), "each agent has what its clients use");
            let caches = got.head.headers.get_all("cache-status").iter().count();
            assert_eq!(caches, 2, "that of the origin, and one for all agents");
        }
    }
    assert_eq!((agents.connections.load(Ordering::Relaxed), origin.requests()), (before, 20));
}

/// The service address belongs to the connection, so all agents have the same keys for its client.
#[tokio::test]
async fn agents_share_the_entries_of_each_service_address() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "N").await;
    let agents = agents(&origin, |_, cache| cache.by_server = true).await;
    for (server, expected) in [("192.0.2.1:443", "1"), ("192.0.2.1:8443", "2")] {
        let client = Client::new(client().address(), server.parse().unwrap(), None);
        for proxy in &agents.proxies {
            let response = proxy.get().unwrap().respond(get("/", &[]), &client);
            let got = timeout(LIMIT, async { Got::of(response.await).await }).await.unwrap();
            assert_eq!(got.text(), expected, "{server}");
        }
    }
    assert_eq!(origin.requests(), 2);
}

/// An agent that ends gives each of its entries to the next owner, with all variants and pieces.
#[tokio::test]
async fn entries_are_handed_on() {
    let long: Bytes = (0..1_000_000_u32).map(|number| (number / 7) as u8).collect::<Vec<_>>().into();
    let content = long.clone();
    let origin = CountingOrigin::start(move |asked: Asked| {
        let long = content.clone();
        async move {
            let head = "200 OK\r\nETag: \"v\"\r\nVary: x\r\nCache-Control: max-age=60";
            let is_long = asked.head.starts_with("get /long");
            asked.answer(head, if is_long { &long } else { b"short" }).await;
        }
    })
    .await;
    let agents = agents(&origin, |_, _| {}).await;
    let paths: Vec<_> = (0..30).flat_map(|number| [format!("/short{number}"), format!("/long{number}")]).collect();
    for path in &paths {
        agents.get(0, path).await;
    }
    let taken = agents.cache(0).hand_on().await;
    assert!(taken > paths.len() / 6, "{taken}");
    for path in &paths {
        let got = [agents.get(1, path).await, agents.get(2, path).await];
        assert!(got.iter().any(Got::is_hit), "{path}: no agent but the first one has it");
        for Got { body, .. } in got {
            let expected: &[u8] = if path.starts_with("/long") { &long } else { b"short" };
            let body = body.unwrap();
            assert!(body == expected, "{path}: {} of {}", body.len(), expected.len());
        }
    }
    assert_eq!(origin.requests(), paths.len());
}

#[tokio::test]
async fn purged_entries_are_not_handed_on() {
    let agents = filled(|_, _| {}).await;
    agents.cache(1).purge(Purge::Everything);
    assert_eq!(agents.cache(0).hand_on().await, 0, "agent 1 knows a purge that agent 0 does not know");
    agents.cache(0).purge(Purge::Everything);
    assert_eq!(agents.cache(0).hand_on().await, 0, "all entries were purged");
    for number in 30..60 {
        agents.get(0, &format!("/{number}")).await;
    }
    assert!(agents.cache(0).hand_on().await > 0, "both know the purge");
}

/// An agent that lacks a purge cannot check its entries against it, also if it knows a later one of the same agent.
#[tokio::test]
async fn an_agent_that_lacks_a_purge_hands_nothing_on() {
    let agents = filled(|_, _| {}).await;
    let purge = |number| (PurgeId { incarnation: 9, number }, Purge::Url(format!("example.org/{number}").into()));
    let known = |purges| KnownPurges { purges, ..KnownPurges::default() };
    let handle = |number: usize| agents.proxies[number].get().unwrap().cache();
    handle(1).learn(known(vec![purge(1), purge(2)]));
    handle(0).learn(known(vec![purge(2)]));
    assert_eq!(agents.cache(0).hand_on().await, 0);
    handle(0).learn(known(vec![purge(1)]));
    assert!(agents.cache(0).hand_on().await > 0);
}

/// Its entries may have other lifetimes, or be of clients whose requests go to the origin here.
#[tokio::test]
async fn an_agent_with_other_settings_takes_nothing() {
    let agents = filled(|number, cache| {
        if number == 1 {
            cache.bypass_cookies.push("session".to_owned());
        }
    })
    .await;
    agents.cache(0).hand_on().await;
    assert_eq!(agents.cache(1).status().store.memory_entries, 0);
}

#[tokio::test]
async fn malformed_entries_are_refused() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "content N").await;
    let agents = agents(&origin, |_, _| {}).await;
    let frame = |len: u32, entry: &[u8]| [&[7; 36][..], &len.to_be_bytes(), entry].concat();
    let refused = [vec![1, 2, 3], frame(4, b"few"), frame(9, b"no entry!"), frame(u32::MAX, b""), vec![0; 5 << 20]];
    for (content, purges) in refused.into_iter().map(|content| (content, Some(""))).chain([(Vec::new(), None)]) {
        let request = http::Request::put("/").header("watari-cache-time", "1");
        let request = purges.into_iter().fold(request, |request, value| request.header("watari-cache-purges", value));
        let request = request.body(watari_body::full(content)).unwrap();
        let response = agents.proxies[0].get().unwrap().respond_to_agent(BoxedRequest::from(request)).await;
        assert_eq!(response.status(), 421);
    }
    assert_eq!(agents.cache(0).status().store.memory_entries, 0);
}

#[tokio::test]
async fn long_content_comes_from_the_owner() {
    for fields in ["ETag: \"v\"\r\n", ""] {
        let content: Bytes = (0..3_000_000_u32).map(|number| (number / 11) as u8).collect::<Vec<_>>().into();
        let whole = content.clone();
        let origin = CountingOrigin::start(move |asked: Asked| {
            let content = whole.clone();
            async move {
                asked.answer(&format!("200 OK\r\n{fields}Cache-Control: max-age=60"), &content).await;
            }
        })
        .await;
        let agents = agents(&origin, |_, _| {}).await;
        let clients: Vec<_> = (0..12)
            .map(|number| {
                let agents = agents.clone();
                tokio::spawn(async move { agents.get(number % 3, "/").await.body })
            })
            .collect();
        for client in clients {
            let body = client.await.unwrap().unwrap();
            assert!(body == content, "{} of {} bytes", body.len(), content.len());
        }
        assert_eq!(origin.requests(), 1, "{fields}");
    }
}

/// A request that went on from agent to agent would go round.
#[tokio::test]
async fn an_owner_asks_no_other_agent() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "content").await;
    let agents = agents(&origin, |_, _| {}).await;
    agents.disagree.store(true, Ordering::Relaxed);
    assert_eq!(agents.get(0, "/").await.text(), "content");
    assert_eq!((agents.connections.load(Ordering::Relaxed), origin.requests()), (1, 1));
}

#[tokio::test]
async fn without_its_owner_a_response_comes_from_the_origin() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "content").await;
    let agents = agents(&origin, |_, _| {}).await;
    agents.is_down.store(true, Ordering::Relaxed);
    for number in 0..3 {
        assert_eq!(agents.get(number, "/").await.text(), "content");
    }
    assert_eq!(origin.requests(), 3);
}

#[tokio::test]
async fn an_owner_with_other_settings_is_not_used() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "content").await;
    let agents = agents(&origin, |number, cache| cache.policy = vec![number as u8]).await;
    for number in 0..3 {
        assert_eq!(agents.get(number, "/").await.text(), "content");
    }
    assert_eq!(origin.requests(), 3);
}

#[tokio::test]
async fn an_owner_that_lacks_a_purge_is_not_used() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "N").await;
    let agents = agents(&origin, |_, _| {}).await;
    for number in 0..3 {
        assert_eq!(agents.get(number, "/").await.text(), "1");
    }
    // The message to the others is on its way.
    agents.proxies[0].get().unwrap().cache().purge(Purge::Url("example.org/".into())).unwrap();
    assert_eq!(agents.get(0, "/").await.text(), "2");
}

#[tokio::test]
async fn a_private_response_stays_with_its_client() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: private, max-age=60", "N").await;
    let agents = agents(&origin, |_, _| {}).await;
    let mut contents = Vec::new();
    for number in [0, 1, 2, 0, 1, 2] {
        contents.push(agents.get(number, "/").await.text().to_owned());
    }
    contents.sort_unstable();
    contents.dedup();
    assert_eq!(contents.len(), 6);
}

#[tokio::test]
async fn requests_of_agents_have_to_be_complete() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "N").await;
    let agents = agents(&origin, |_, _| {}).await;
    let head = |fields: &[(&str, &str)]| get("/", fields).into_parts().0;
    for fields in [
        &[][..],
        &[
            ("watari-cache-route", "x"),
            ("watari-cache-purges", ""),
            ("watari-cache-client", "192.0.2.1:1 192.0.2.2:443"),
        ],
        &[
            ("watari-cache-route", "x"),
            ("watari-cache-purges", "g"),
            ("watari-cache-client", "192.0.2.1:1 192.0.2.2:443"),
        ],
        &[("watari-cache-route", "x"), ("watari-cache-purges", ""), ("watari-cache-client", "192.0.2.1")],
    ] {
        let response =
            agents.proxies[0].get().unwrap().respond_to_agent(BoxedRequest::without_content(head(fields))).await;
        assert!(response.headers().contains_key("watari-cache-refused"), "{fields:?}");
    }
    assert_eq!(origin.requests(), 0);
}
