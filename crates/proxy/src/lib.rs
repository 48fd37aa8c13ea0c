//! HTTP forwarded to origins.
//!
//! [`Proxy::respond`] answers one request by asking an origin: plain HTTP/1.1, over pooled connections, each request
//! to the next origin in turn. Bodies stream both ways as fast as the slower side takes them; nothing is kept of them.
//!
//! * A request goes to another origin only while it is untouched: no connection could be had, or the one that was
//!   kept turned out closed before a byte was written. One that may have reached an origin is sent again only if
//!   it has no body and repeating it is harmless (RFC 9110, section 9.2.2).
//! * A response that an origin cuts short, or stops sending, ends with an error and never as if it were complete.
//! * What the client says about itself in fields that only a proxy may set (`Forwarded`, `Client-Cert`, ..) is replaced
//!   by what is true.
//!
//! Not forwarded: upgrades (the field is removed, so that the origin answers plainly), `CONNECT`, `TRACE`, and
//! informational responses.

mod body;
mod client;
mod failure;
mod fields;
mod metrics;
mod origin;
mod pool;
mod request;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::Instant;

pub use watari_files::{Body, BoxError};

pub use crate::client::Client;
pub use crate::metrics::Metrics;
pub use crate::origin::{InvalidOrigin, OriginAddress};

use crate::body::RequestBody;
use crate::failure::Failure;
use crate::origin::{Origin, Outcome};

/// What bounds the proxy's work; every wait has an end and every pool a size.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long connecting to an origin may take, its name's resolution included.
    pub connect_timeout: Duration,
    /// How long an origin may take from the end of a request to the head of its response. While a body is being sent,
    /// how long it may go without taking a piece.
    pub response_timeout: Duration,
    /// How long an origin may pause in the middle of a response body.
    pub body_timeout: Duration,
    /// How many origins are tried for one request.
    pub attempts_max: usize,
    /// How long an origin that could not be connected to is passed over, as long as there are others.
    pub ejection: Duration,
    /// Requests that one origin is given at the same time; with [`Limits::idle_max`] this bounds its connections.
    pub in_flight_max: usize,
    /// Connections to one origin that are kept for later requests.
    pub idle_max: usize,
    /// How long they are kept.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_mins(1),
            body_timeout: Duration::from_mins(1),
            attempts_max: 3,
            ejection: Duration::from_secs(5),
            in_flight_max: 1024,
            idle_max: 128,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Forwards requests to a list of origins, in round robin.
#[derive(Debug)]
pub struct Proxy {
    origins: Vec<Arc<Origin>>,
    next: AtomicUsize,
    limits: Arc<Limits>,
    metrics: Metrics,
}

impl Proxy {
    /// A proxy for `origins`; without any, each request is answered with 503. Nothing is connected yet.
    pub fn new(origins: impl IntoIterator<Item = OriginAddress>, limits: Limits, metrics: Metrics) -> Self {
        let limits = Arc::new(limits);
        let origin = |address| Arc::new(Origin::new(address, &limits, &metrics));
        Self { origins: origins.into_iter().map(origin).collect(), next: AtomicUsize::new(0), limits, metrics }
    }

    /// Forwards a request of `client` and returns the origin's response, or a short text that says why there is none.
    ///
    /// Dropping the future, or the response's body, gives up the exchange and closes its connection.
    pub async fn respond<B>(&self, request: Request<B>, client: &Client) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let target = request.uri().path().to_owned();
        match self.forward(request, client).await {
            Ok(response) => response,
            Err(failure) => {
                self.metrics.count_failure(&failure);
                failure.log(&target, client);
                failure.response()
            }
        }
    }

    async fn forward<B>(&self, request: Request<B>, client: &Client) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let head = request::rewrite(head, client)?;
        let (body, upload) = RequestBody::wrap(body);
        let mut request = Request::from_parts(head, body);
        let mut failure = Failure::NoOrigin;
        for origin in self.turn(Instant::now()).into_iter().take(self.limits.attempts_max) {
            match origin.exchange(request, upload.as_deref()).await {
                Outcome::Answered(response) => return Ok(response),
                Outcome::Failed(failure) => return Err(failure),
                Outcome::Untouched(untouched, why) => (request, failure) = (untouched, why),
            }
        }
        Err(failure)
    }

    /// All origins, from the one whose turn it is; those that were out of reach a moment ago come last.
    fn turn(&self, now: Instant) -> Vec<&Arc<Origin>> {
        let count = self.origins.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = (0..count).map(|step| &self.origins[first.wrapping_add(step) % count]);
        let mut turn: Vec<_> = turn.collect();
        turn.sort_by_cached_key(|origin| origin.is_ejected(now));
        turn
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names(turn: &[&Arc<Origin>]) -> Vec<String> {
        turn.iter().map(|origin| origin.address.to_string()).collect()
    }

    #[test]
    fn origins_take_turns_and_the_ejected_come_last() {
        let addresses = ["http://a", "http://b", "http://c"].map(|address| address.parse().unwrap());
        let proxy = Proxy::new(addresses, Limits::default(), Metrics::default());
        let now = Instant::now();
        assert_eq!(names(&proxy.turn(now)), ["http://a", "http://b", "http://c"]);
        assert_eq!(names(&proxy.turn(now)), ["http://b", "http://c", "http://a"]);
        proxy.origins[2].eject(now);
        assert_eq!(names(&proxy.turn(now)), ["http://a", "http://b", "http://c"]);
        proxy.origins[0].eject(now);
        assert_eq!(names(&proxy.turn(now)), ["http://b", "http://a", "http://c"]);
        let later = now + proxy.limits.ejection;
        assert_eq!(names(&proxy.turn(later)), ["http://b", "http://c", "http://a"]);
    }
}
