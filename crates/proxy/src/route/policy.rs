//! Settings for the selection of origins and for retries.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use http::header::COOKIE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watari_balance::{OriginPolicy, OutlierLimits, RetryLimits};

use crate::exchange::client::Client;

/// How a pool selects the origin of a request, and another one after a failure.
#[derive(Debug, Clone)]
pub struct Balance {
    pub policy: OriginPolicy,
    /// The key for [`OriginPolicy::Hash`].
    pub hash_key: HashKey,
    /// The time until an origin that has come back gets its full share. `None`: it gets that at once.
    pub slow_start: Option<Duration>,
    /// When origins are ejected because requests to them fail.
    pub outliers: OutlierLimits,
    /// The retry budget.
    pub retries: RetryLimits,
    /// The failures after which a repeatable request is tried again. A request that no origin has seen is always tried
    /// again.
    pub retry_on: BTreeSet<RetryOn>,
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            policy: OriginPolicy::RoundRobin,
            hash_key: HashKey::Path,
            slow_start: None,
            outliers: OutlierLimits::default(),
            retries: RetryLimits::default(),
            retry_on: BTreeSet::from([RetryOn::Reset]),
        }
    }
}

/// The part of a request that selects its origin. If a request lacks it, the client's address is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashKey {
    /// The path, without the query.
    Path,
    /// The client's address.
    Client,
    /// The first field of this name.
    Header(HeaderName),
    /// The first cookie of this name.
    Cookie(String),
}

/// The text is not a [`HashKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected \"path\", \"client\", \"header:NAME\" or \"cookie:NAME\"")]
pub struct InvalidHashKey;

/// A failure after which another origin may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
pub enum RetryOn {
    /// The connection broke before the head of a response.
    #[serde(rename = "reset")]
    Reset,
    /// The origin responded with this status.
    #[serde(rename = "502")]
    BadGateway,
    /// The origin responded with this status.
    #[serde(rename = "503")]
    Unavailable,
    /// The origin responded with this status.
    #[serde(rename = "504")]
    GatewayTimeout,
}

impl RetryOn {
    pub(crate) fn of(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::BAD_GATEWAY => Some(Self::BadGateway),
            StatusCode::SERVICE_UNAVAILABLE => Some(Self::Unavailable),
            StatusCode::GATEWAY_TIMEOUT => Some(Self::GatewayTimeout),
            _ => None,
        }
    }
}

impl HashKey {
    /// The key of a request.
    pub(crate) fn of<'a>(&self, request: &'a Parts, client: &Client) -> Cow<'a, [u8]> {
        let found = match self {
            Self::Path => Some(request.uri.path().as_bytes()),
            Self::Client => None,
            Self::Header(name) => request.headers.get(name).map(http::HeaderValue::as_bytes),
            Self::Cookie(name) => cookie(&request.headers, name),
        };
        found.map_or_else(|| Cow::Owned(octets(client.address().ip())), Cow::Borrowed)
    }
}

impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path => f.write_str("path"),
            Self::Client => f.write_str("client"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

impl FromStr for HashKey {
    type Err = InvalidHashKey;

    fn from_str(text: &str) -> Result<Self, InvalidHashKey> {
        match text.split_once(':') {
            None if text == "path" => Ok(Self::Path),
            None if text == "client" => Ok(Self::Client),
            Some(("header", name)) => name.parse().map(Self::Header).map_err(|_| InvalidHashKey),
            // A cookie's name is a token like a field's (RFC 6265, section 4.1.1), but case-sensitive.
            Some(("cookie", name)) if name.parse::<HeaderName>().is_ok() => Ok(Self::Cookie(name.to_owned())),
            _ => Err(InvalidHashKey),
        }
    }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| pair.trim_ascii_start().strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.next()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::Request;

    use super::*;

    #[test]
    fn requests_have_the_key_that_is_asked_for() {
        let client = Client::new("[::ffff:192.0.2.7]:1".parse().unwrap(), "192.0.2.1:443".parse().unwrap(), None);
        let request = Request::get("/path?query").header("x-user", "me").header("cookie", "a=1; sid=x=y; xsid=2");
        let (request, ()) = request.body(()).unwrap().into_parts();
        for (key, expected) in [
            ("path", &b"/path"[..]),
            ("client", &[192, 0, 2, 7]),
            ("header:X-User", b"me"),
            ("header:x-other", &[192, 0, 2, 7]),
            ("cookie:sid", b"x=y"),
            ("cookie:id", &[192, 0, 2, 7]),
        ] {
            assert_eq!(*key.parse::<HashKey>().unwrap().of(&request, &client), *expected, "{key}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "url", "path:", "header:", "header:a b", "cookie:", "cookie:a;b", "client:x"] {
            assert_eq!(text.parse::<HashKey>(), Err(InvalidHashKey), "{text}");
        }
    }
}
