//! Asks an external authority whether a request may proceed, and for which user.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, Response};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;
use watari_body::{Body, BoxedRequest, empty};

use crate::admit::auth::{Auth, AuthConfig};
use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::exchange::limits::Limits;
use crate::observe::metrics::Metrics;
use crate::pool::origin::{Origin, Outcome};
use crate::pool::response_body::ResponseBody;
use crate::pool::{PoolConfig, origins};
use crate::transport::connect::InvalidTransport;

/// An authority, and the connections to it.
#[derive(Debug)]
pub(crate) struct Authority {
    auth: Auth,
    origin: Arc<Origin>,
    timeout: Duration,
}

/// The name of authorities in metrics.
const POOL: &str = "auth";

/// The maximum number of bytes to read of a response body that is not needed, so that the connection can be used again.
const DRAINED_MAX: usize = 64 * 1024;

impl Authority {
    pub(crate) fn new(config: AuthConfig, metrics: &Metrics) -> Result<Self, InvalidTransport> {
        let timeout = config.timeout;
        let limits = Limits { connect_timeout: timeout, response_timeout: timeout, ..Limits::default() };
        let (address, transport) = (config.url.address().clone(), config.transport.clone());
        let pool = PoolConfig { transport, limits, ..PoolConfig::plain(POOL, [address]) };
        Ok(Self { auth: Auth::new(config), origin: origins(&pool, metrics)?.remove(0), timeout })
    }

    /// Asks whether the request with this head may proceed. If so, copies fields into the head, and returns `None`.
    /// Otherwise returns the client's response.
    pub(crate) async fn ask(&self, head: &mut Parts, client: &Client) -> Result<Option<Response<Body>>, Failure> {
        let mut question = self.auth.question(head)?;
        let answer = timeout(self.timeout, self.answer(&mut question, client)).await;
        let answer = answer.map_err(|_| self.silent())??;
        self.auth.decide(answer, head)
    }

    /// Whether requests get a field from the authority that is not among these.
    pub(crate) fn copies_beyond(&self, names: &[HeaderName]) -> bool {
        self.auth.copies_beyond(names)
    }

    /// The authority's response. If the request may proceed, reads and drops the body within the same timeout.
    async fn answer(&self, question: &mut BoxedRequest, client: &Client) -> Result<Response<Body>, Failure> {
        match self.origin.exchange(question, None, client).await {
            Outcome::Answered(answer) if answer.status().is_success() => {
                let (head, body) = answer.into_parts();
                drain(body).await;
                Ok(Response::from_parts(head, empty()))
            }
            Outcome::Answered(answer) => Ok(answer.map(ResponseBody::boxed)),
            Outcome::Untouched(failure) | Outcome::Failed(failure) => Err(Failure::Auth(Box::new(failure))),
        }
    }

    fn silent(&self) -> Failure {
        Failure::Auth(Box::new(Failure::ResponseTimeout(self.origin.address.clone())))
    }
}

async fn drain(body: ResponseBody) {
    // If the body is longer, the connection is closed.
    let _ = Limited::new(body, DRAINED_MAX).collect().await;
}
