//! A proxy that replaces another.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use watari_proxy::{Config, Metrics, OriginAddress, PoolConfig, Proxy};

use crate::common::{ScriptedOrigin, client, get, ok, read};

fn config(origins: impl IntoIterator<Item = OriginAddress>) -> Config {
    Config::one_pool(PoolConfig::plain("pool", origins))
}

async fn answer(proxy: &Proxy) -> String {
    read(proxy.respond(get(), &client()).await).await.1.unwrap()
}

#[tokio::test]
async fn a_pool_that_stays_keeps_its_connections() {
    let mut origin = ScriptedOrigin::start([ok("1"), ok("2"), ok("3")]).await;
    let config = || config([origin.address.clone()]);
    let old = Proxy::new(config(), Metrics::default()).unwrap();
    assert_eq!(answer(&old).await, "1");
    let same = Proxy::succeed(config(), &old, |name| name == "pool").unwrap();
    assert_eq!(answer(&same).await, "2");
    let other = Proxy::succeed(config(), &same, |_| false).unwrap();
    drop((old, same));
    assert_eq!(answer(&other).await, "3");
    assert_eq!(origin.connections(), [1, 1, 2]);
}

#[tokio::test]
async fn an_origin_that_is_gone_is_not_counted_as_healthy() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let shown = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        ["a", "b"].map(|origin| text.contains(&format!("origin_healthy{{pool=\"pool\",origin=\"http://{origin}\"")))
    };
    let config = |origins: &[&str]| config(origins.iter().map(|origin| format!("http://{origin}").parse().unwrap()));
    let old = Proxy::new(config(&["a", "b"]), metrics).unwrap();
    let next = Proxy::succeed(config(&["b"]), &old, |_| false).unwrap();
    assert_eq!(shown(), [true, true]);
    drop(old);
    assert_eq!(shown(), [false, true]);
    drop(next);
    assert_eq!(shown(), [false, false]);
}

#[tokio::test]
async fn an_origin_that_shall_be_left_still_is() {
    let (left, other) = (ScriptedOrigin::start([]).await, ScriptedOrigin::start(vec![ok("other"); 4]).await);
    let config = || config([left.address.clone(), other.address.clone()]);
    let old = Proxy::new(config(), Metrics::default()).unwrap();
    old.drain(&left.address, true).unwrap();
    let next = Proxy::succeed(config(), &old, |_| false).unwrap();
    for _ in 0..4 {
        assert_eq!(answer(&next).await, "other");
    }
}
