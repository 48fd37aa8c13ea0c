//! Health checks of origins.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use watari_balance::HealthThresholds;
use watari_body::{BoxedRequest, empty};

use crate::pool::origin::Origin;
use crate::transport::connect::Connected;
use crate::transport::http1::Exchange;
use crate::transport::request;

/// How origins are checked.
#[derive(Debug, Clone)]
pub struct Check {
    /// The request to send. `None`: the check succeeds if a connection can be made, with TLS if configured.
    pub http: Option<HttpCheck>,
    /// The time between the starts of two checks.
    pub interval: Duration,
    /// The timeout of one check.
    pub timeout: Duration,
    /// How many results in a row change the state.
    pub thresholds: HealthThresholds,
}

impl Default for Check {
    fn default() -> Self {
        Self {
            http: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            thresholds: HealthThresholds { fall: 3, rise: 2 },
        }
    }
}

/// The request of a check, and the expected response.
#[derive(Debug, Clone)]
pub struct HttpCheck {
    /// Path and query.
    pub path: PathAndQuery,
    /// The value of `Host`. `None`: the host of the origin's address.
    pub host: Option<Authority>,
    /// Statuses of a healthy origin.
    pub statuses: RangeInclusive<u16>,
}

impl HttpCheck {
    /// Requests `path`, and expects a status from 200 to 299.
    pub fn of(path: PathAndQuery) -> Self {
        Self { path, host: None, statuses: 200..=299 }
    }

    fn request(&self, origin: &Origin) -> BoxedRequest {
        let mut request = Request::new(empty());
        *request.uri_mut() = self.path.clone().into();
        let host = self.host.as_ref().map_or_else(|| origin.address.authority(), ToString::to_string);
        let host = HeaderValue::try_from(host).expect("an authority is printable ASCII");
        request.headers_mut().insert(HOST, host);
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("watari-check"));
        request.into()
    }
}

/// Checks these origins until the returned set is dropped.
pub(crate) fn start(origins: &[Arc<Origin>], check: &Check) -> JoinSet<()> {
    origins.iter().map(|origin| run(Arc::clone(origin), check.clone())).collect()
}

/// Checks an origin without end.
async fn run(origin: Arc<Origin>, check: Check) {
    let mut due = interval(check.interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let result = timeout(check.timeout, once(&origin, &check)).await;
        let well = matches!(result, Ok(true));
        origin.health_of.checked(well, check.thresholds, Instant::now().into_std());
    }
}

/// Whether an origin is healthy. Each check makes its own connection, as a new client does.
async fn once(origin: &Origin, check: &Check) -> bool {
    let Ok(connected) = origin.open(None, false).await else { return false };
    let Some(http) = &check.http else { return true };
    let mut request = http.request(origin);
    let status = match connected {
        Connected::Http1(connection) => {
            let Ok(mut exchange) = Exchange::new(connection, &mut request, None) else { return false };
            exchange.response().await.ok().map(|head| head.status)
        }
        Connected::Http2(mut sender, _) => {
            let head = request::for_http2(&request.head, origin.address.is_tls());
            sender.send_request(Request::from_parts(head, request.body)).await.ok().map(|response| response.status())
        }
    };
    status.is_some_and(|status| http.statuses.contains(&status.as_u16()))
}
