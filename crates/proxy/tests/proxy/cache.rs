//! Responses of origins from the cache.

mod collapsing;
mod moving_parts;
mod origin;
mod random;
mod reuse;
mod shared;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Collected, Empty};
use watari_body::Body;
use watari_cache_store::{Store, StoreConfig};
use watari_proxy::{
    AuthConfig, CacheHandle, CacheRules, Client, Config, KeyRules, Lifetimes, Metrics, OriginAddress, PathPrefix,
    PoolConfig, Proxy, Route, RouteCache,
};

use self::origin::CountingOrigin;
use crate::common::client;

/// A proxy whose only route has a cache.
struct Cached {
    proxy: Proxy,
}

impl Cached {
    async fn before(origin: &CountingOrigin) -> Self {
        Self::with(PoolConfig::plain("pool", [origin.address.clone()]), |_| {}).await
    }

    async fn with(pool: PoolConfig, change: impl FnOnce(&mut RouteCache)) -> Self {
        Self::with_memory(pool, 64 << 20, change).await
    }

    async fn with_memory(pool: PoolConfig, memory_bytes_max: usize, change: impl FnOnce(&mut RouteCache)) -> Self {
        Self::start(None, pool, memory_bytes_max, change).await
    }

    /// Behind an authority.
    async fn behind(auth: AuthConfig, pool: PoolConfig, change: impl FnOnce(&mut RouteCache)) -> Self {
        Self::start(Some(auth), pool, 64 << 20, change).await
    }

    async fn start(
        auth: Option<AuthConfig>,
        pool: PoolConfig,
        memory_bytes_max: usize,
        change: impl FnOnce(&mut RouteCache),
    ) -> Self {
        let mut cache = RouteCache {
            rules: CacheRules {
                key: KeyRules::default(),
                lifetimes: Lifetimes::default(),
                object_bytes_max: 1 << 30,
                whole_on_range: false,
            },
            policy: b"test".to_vec(),
            by_server: false,
            bypass_cookies: Vec::new(),
            bypass_headers: Vec::new(),
            is_shared: false,
        };
        change(&mut cache);
        let auths: Vec<_> = auth.into_iter().collect();
        let auth = (!auths.is_empty()).then_some(0);
        let route = Route { cache: Some(cache.into()), auth, ..Route::to_pool(None, PathPrefix::all(), 0) };
        let handle = CacheHandle::default();
        let config = StoreConfig { memory_bytes_max, disk: None };
        let store = Store::open(config, watari_cache_store::Metrics::default()).await.unwrap();
        handle.load(watari_cache::Purges::new(1)).open(store);
        let config = Config { routes: vec![route], auths, cache: handle, ..Config::one_pool(pool) };
        Self { proxy: Proxy::new(config, Metrics::default()).unwrap() }
    }

    async fn respond(&self, request: Request<Empty<Bytes>>) -> Response<Body> {
        self.proxy.respond(request, &client()).await
    }

    /// GET by this client.
    async fn get_as(&self, client: &Client, path: &str) -> Got {
        Got::of(self.proxy.respond(get(path, &[]), client).await).await
    }

    /// GET with these fields.
    async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Got {
        Got::of(self.respond(get(path, fields)).await).await
    }
}

fn get(path: &str, fields: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let request = Request::get(path).header("host", "example.org");
    fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(Empty::new()).unwrap()
}

fn pool(origins: impl IntoIterator<Item = OriginAddress>) -> PoolConfig {
    PoolConfig::plain("pool", origins)
}

/// A response that was read to its end.
#[derive(Debug)]
struct Got {
    head: http::response::Parts,
    body: Result<Bytes, String>,
}

impl Got {
    async fn of(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.map(Collected::to_bytes).map_err(|error| error.to_string());
        Self { head, body }
    }

    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn field(&self, name: &str) -> &str {
        self.head.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().unwrap()).unwrap()
    }

    /// Whether the agent of the client had it. Its field comes after that of another agent.
    fn is_hit(&self) -> bool {
        self.head
            .headers
            .get_all("cache-status")
            .iter()
            .next_back()
            .is_some_and(|last| last.to_str().unwrap().starts_with("watari; hit"))
    }
}
