//! Limits on the requests of each client. They apply before any other step of a request.

use std::net::IpAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Mutex, PoisonError};

use http_body::Body as _;
use http_body_util::Limited;
use tokio::time::Instant;
use watari_admission::{Concurrency, InProgress, RateLimit, Rates};
use watari_balance::ClientPrefix;
use watari_body::Body;

use crate::exchange::client::Client;
use crate::exchange::failure::Failure;

/// Limits on the requests of each client. The HTTP server limits the lengths of heads before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// The length of the address prefix that identifies a client, here and in queues.
    pub prefix: ClientPrefix,
    /// The request rate of a client. `None`: no limit.
    pub rate: Option<RateLimit>,
    /// The maximum number of a client's requests in progress. A request is in progress until the body of its response,
    /// or its tunnel, has ended. `None`: no limit.
    pub requests_max: Option<NonZeroUsize>,
    /// The maximum length of a request body, in bytes. `None`: no limit.
    pub body_bytes_max: Option<NonZeroU64>,
}

impl Default for ClientLimits {
    /// No limits. The first 64 bits of an IPv6 address identify a client, because a host has all addresses of such a
    /// network.
    fn default() -> Self {
        let prefix = ClientPrefix::new(32, 64).expect("prefixes of 32 and 64 bits are valid");
        Self { prefix, rate: None, requests_max: None, body_bytes_max: None }
    }
}

/// The state of all clients.
#[derive(Debug)]
pub(crate) struct Clients {
    limits: ClientLimits,
    rates: Option<Mutex<Rates>>,
    concurrency: Concurrency,
}

/// The number of clients whose rates are stored, which takes 15 MB.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("100,000 is not 0");

impl Clients {
    pub(crate) fn new(limits: ClientLimits) -> Self {
        let rates = limits.rate.map(|rate| Mutex::new(Rates::new(rate, REMEMBERED_MAX)));
        Self { limits, rates, concurrency: Concurrency::default() }
    }

    pub(crate) fn limits(&self) -> &ClientLimits {
        &self.limits
    }

    /// The address that stands for the client's network.
    pub(crate) fn network(&self, client: &Client) -> IpAddr {
        self.limits.prefix.network(client.address().ip())
    }

    /// Counts a request. It is in progress until the returned value is dropped.
    pub(crate) fn admit(&self, client: &Client) -> Result<Option<InProgress>, Failure> {
        let network = self.network(client);
        if let Some(rates) = &self.rates {
            let mut rates = rates.lock().unwrap_or_else(PoisonError::into_inner);
            rates.check(network, Instant::now().into_std()).map_err(Failure::TooFast)?;
        }
        let Some(max) = self.limits.requests_max else { return Ok(None) };
        self.concurrency.enter(network, max.get()).map(Some).ok_or(Failure::TooMany)
    }

    /// Limits the body of a request. The body fails if it is too long and does not announce that.
    pub(crate) fn bound(&self, body: Body) -> Result<Limited<Body>, Failure> {
        let max = self.limits.body_bytes_max.map_or(u64::MAX, NonZeroU64::get);
        if body.size_hint().lower() > max {
            return Err(Failure::UploadTooLong);
        }
        Ok(Limited::new(body, usize::try_from(max).unwrap_or(usize::MAX)))
    }
}
