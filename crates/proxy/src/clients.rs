//! What each client may ask for, whatever that is: it counts before anything is done for a request.

use std::net::IpAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Mutex, PoisonError};

use http_body_util::Limited;
use tokio::time::Instant;
use watari_admission::{Concurrency, InProgress, RateLimit, Rates};
use watari_balance::ClientPrefix;

use crate::client::Client;
use crate::failure::Failure;

/// What bounds the requests of each client. The lengths of heads are bounded before, by whoever reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLimits {
    /// What tells clients apart, here and in queues.
    pub prefix: ClientPrefix,
    /// How many requests a client may make in a time; `None`: any number.
    pub rate: Option<RateLimit>,
    /// How many of its requests may be in progress, until the bodies of their responses, or the tunnels that follow them, have
    /// ended; `None`: any number.
    pub requests_max: Option<NonZeroUsize>,
    /// How long the body of a request may be, in bytes; `None`: of any length.
    pub body_bytes_max: Option<NonZeroU64>,
}

impl Default for ClientLimits {
    /// None. Whoever has an IPv6 address has all those that share its first 64 bits.
    fn default() -> Self {
        let prefix = ClientPrefix::new(32, 64).expect("addresses are longer than that");
        Self { prefix, rate: None, requests_max: None, body_bytes_max: None }
    }
}

/// What clients have asked for.
#[derive(Debug)]
pub(crate) struct Clients {
    limits: ClientLimits,
    rates: Option<Mutex<Rates>>,
    concurrency: Concurrency,
}

/// Clients whose rates are remembered: 15 MB of them.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("it is not zero");

impl Clients {
    pub(crate) fn new(limits: ClientLimits) -> Self {
        let rates = limits.rate.map(|rate| Mutex::new(Rates::new(rate, REMEMBERED_MAX)));
        Self { limits, rates, concurrency: Concurrency::default() }
    }

    pub(crate) fn limits(&self) -> &ClientLimits {
        &self.limits
    }

    /// The address that stands for a client.
    pub(crate) fn network(&self, client: &Client) -> IpAddr {
        self.limits.prefix.network(client.address().ip())
    }

    /// Counts a request, which is in progress until what is returned is dropped.
    pub(crate) fn admit(&self, client: &Client) -> Result<Option<InProgress>, Failure> {
        let network = self.network(client);
        if let Some(rates) = &self.rates {
            let mut rates = rates.lock().unwrap_or_else(PoisonError::into_inner);
            rates.check(network, Instant::now().into_std()).map_err(Failure::TooFast)?;
        }
        let Some(max) = self.limits.requests_max else { return Ok(None) };
        self.concurrency.enter(network, max.get()).map(Some).ok_or(Failure::TooMany)
    }

    /// The body of a request, which fails where it is too long and does not say so beforehand.
    pub(crate) fn bound<B: http_body::Body>(&self, body: B) -> Result<Limited<B>, Failure> {
        let max = self.limits.body_bytes_max.map_or(u64::MAX, NonZeroU64::get);
        if body.size_hint().lower() > max {
            return Err(Failure::UploadTooLong);
        }
        Ok(Limited::new(body, usize::try_from(max).unwrap_or(usize::MAX)))
    }
}
