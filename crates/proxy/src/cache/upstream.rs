//! Where responses come from if the cache has none: the origins of the route's pool.

use std::net::IpAddr;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use watari_body::{Body, BoxedRequest};
use watari_cache::Key;

use super::owners::Terms;
use super::response_cache::ResponseCache;
use crate::admit::request_guards::RequestGuards;
use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::observe::access_log::RequestTrace;
use crate::route::cache::RouteCache;
use crate::transfer::transfers::Transfers;

/// The origins of one request, and all that a request to them needs. It can outlive the client's request.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) client: Client,
    /// The requested host, without a port.
    pub(crate) host: String,
    /// In plain form.
    pub(crate) path: String,
    /// The client's network, for queues.
    pub(crate) network: IpAddr,
    /// Whether the agents that own keys are asked first.
    pub(crate) asks_owners: bool,
}

impl Upstream {
    /// Requests a response that is stored under `key`: from the owner of the key, or from an origin.
    pub(super) async fn ask_owner_first(
        &self,
        cache: &ResponseCache,
        route: &RouteCache,
        key: &Key,
        head: Parts,
        trace: &Arc<RequestTrace>,
    ) -> Result<Response<Body>, Failure> {
        if let Some(owners) = cache.owners().filter(|_| self.asks_owners && route.is_shared) {
            let terms = Terms { route: &route.fingerprint(), client: &self.client, purges: cache.latest_purges() };
            // Boxed: most requests do without this large future.
            if let Some(response) = Box::pin(owners.ask(key, &head, terms)).await {
                return Ok(response);
            }
        }
        self.ask(head, trace).await
    }

    /// Requests a response without content in the request. It holds its slot at the origins until its body has ended.
    pub(super) async fn ask(&self, head: Parts, trace: &Arc<RequestTrace>) -> Result<Response<Body>, Failure> {
        let pool = self.transfers.pool();
        let place = pool.enter(&self.host, &self.path, self.network).await?;
        let request = BoxedRequest::without_content(head);
        let response = self.transfers.forward(request, None, &self.client, trace).await?;
        Ok(RequestGuards { place, ..RequestGuards::default() }.until_end_of(response))
    }
}
