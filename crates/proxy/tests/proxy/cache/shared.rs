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
use watari_cache::{Key, Purge};
use watari_proxy::{AgentStream, Owners, Proxy, RouteCache};
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
    connections: AtomicUsize,
}

/// The agents as one of them, by its number, has them.
struct Linked(usize, Arc<Agents>);

impl Owners for Linked {
    fn owner(&self, key: &Key, is_away: &dyn Fn(&NodeName) -> bool) -> Option<NodeName> {
        let owner = usize::from(key.0[0]) % 3;
        Some(name(owner)).filter(|agent| owner != self.0 && !is_away(agent))
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
                    let (agents, head) = (agents.clone(), request.into_parts().0);
                    async move { Ok::<_, io::Error>(agents.proxies[number].get().unwrap().respond_to_agent(head).await) }
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

impl Agents {
    async fn respond(&self, number: usize, path: &str) -> Response<watari_body::Body> {
        self.proxies[number].get().unwrap().respond(get(path, &[]), &client()).await
    }

    async fn get(&self, number: usize, path: &str) -> Got {
        timeout(LIMIT, async { Got::of(self.respond(number, path).await).await }).await.unwrap()
    }
}

#[tokio::test]
async fn clients_of_three_agents_make_one_request() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60", "content N").await;
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
            assert!(agents.get(number, &format!("/{path}")).await.is_hit(), "each agent has what its clients use");
        }
    }
    assert_eq!((agents.connections.load(Ordering::Relaxed), origin.requests()), (before, 20));
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
        let response = agents.proxies[0].get().unwrap().respond_to_agent(head(fields)).await;
        assert!(response.headers().contains_key("watari-cache-refused"), "{fields:?}");
    }
    assert_eq!(origin.requests(), 0);
}
