//! Origins are asked how they are.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use watari_balance::Patience;

use crate::Body;
use crate::body;
use crate::connect::Sender;
use crate::origin::Origin;
use crate::request;

/// How origins are asked whether they are fit for requests.
#[derive(Debug, Clone)]
pub struct Check {
    /// What is asked. `None`: it is enough that a connection can be made, with TLS where that is spoken.
    pub http: Option<HttpCheck>,
    /// From one check to the next.
    pub interval: Duration,
    /// How long one may take.
    pub timeout: Duration,
    /// How many count.
    pub patience: Patience,
}

impl Default for Check {
    fn default() -> Self {
        Self {
            http: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            patience: Patience { fall: 3, rise: 2 },
        }
    }
}

/// A request whose answer tells how an origin is.
#[derive(Debug, Clone)]
pub struct HttpCheck {
    /// Path and query.
    pub path: PathAndQuery,
    /// For which host. `None`: for the one in the origin's address.
    pub host: Option<Authority>,
    /// Statuses of origins that are well.
    pub statuses: RangeInclusive<u16>,
}

impl HttpCheck {
    /// Asks for `path`, and expects a status from 200 to 299.
    pub fn of(path: PathAndQuery) -> Self {
        Self { path, host: None, statuses: 200..=299 }
    }

    fn request(&self, origin: &Origin) -> Request<Body> {
        let mut request = Request::new(body::empty());
        *request.uri_mut() = self.path.clone().into();
        let host = self.host.as_ref().map_or_else(|| origin.address.authority(), ToString::to_string);
        let host = HeaderValue::try_from(host).expect("an authority is printable ASCII");
        request.headers_mut().insert(HOST, host);
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("watari-check"));
        request
    }
}

/// Checks these until what is returned is dropped.
pub(crate) fn start(origins: &[Arc<Origin>], check: &Check) -> JoinSet<()> {
    origins.iter().map(|origin| run(Arc::clone(origin), check.clone())).collect()
}

/// Checks an origin for ever.
async fn run(origin: Arc<Origin>, check: Check) {
    let mut due = interval(check.interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let result = timeout(check.timeout, once(&origin, &check)).await;
        let well = matches!(result, Ok(true));
        origin.standing.checked(well, check.patience, Instant::now().into_std());
    }
}

/// Whether an origin is well. Each check has a connection of its own, as a new client would.
async fn once(origin: &Origin, check: &Check) -> bool {
    let Ok((sender, _)) = origin.open(None, false).await else { return false };
    let Some(http) = &check.http else { return true };
    let request = http.request(origin);
    let response = match sender {
        Sender::Http1(mut sender) => sender.send_request(request).await,
        Sender::Http2(mut sender) => sender.send_request(request::for_http2(request, origin.address.is_tls())).await,
    };
    response.is_ok_and(|response| http.statuses.contains(&response.status().as_u16()))
}
