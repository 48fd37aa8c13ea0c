//! Requests, responses and stored responses for tests.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, request, response};

use crate::entry::{Content, StoredResponse};
use crate::fields::{date_value, stored_fields};
use crate::groups::groups;
use crate::key::KeyRules;
use crate::rules::{Lifetimes, Rules};
use crate::storing::{Received, judge};

pub(crate) type Fields<'a> = &'a [(&'a str, &'a str)];

/// 2020-09-13 12:26:40 UTC.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000)
}

/// The HTTP date so many seconds after [`now`].
pub(crate) fn date(seconds: i64) -> String {
    let time = if seconds < 0 {
        now() - Duration::from_secs(seconds.unsigned_abs())
    } else {
        now() + Duration::from_secs(seconds.unsigned_abs())
    };
    date_value(time).to_str().unwrap().to_owned()
}

/// A response that arrived at once.
pub(crate) fn received() -> Received {
    Received { requested: now(), responded: now() }
}

pub(crate) fn headers(fields: Fields<'_>) -> HeaderMap {
    let field = |&(name, value): &(&str, &str)| -> (HeaderName, HeaderValue) {
        (name.parse().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    fields.iter().map(field).collect()
}

pub(crate) fn request(method: &str, fields: Fields<'_>) -> request::Parts {
    let mut request = Request::builder().method(method).uri("/a?b").body(()).unwrap().into_parts().0;
    request.headers = headers(fields);
    request
}

pub(crate) fn get(fields: Fields<'_>) -> request::Parts {
    request("GET", fields)
}

pub(crate) fn response(status: u16, fields: Fields<'_>) -> response::Parts {
    let mut response = Response::builder().status(status).body(()).unwrap().into_parts().0;
    response.headers = headers(fields);
    response
}

pub(crate) fn rules() -> Rules {
    Rules {
        key: KeyRules::default(),
        lifetimes: Lifetimes::default(),
        object_bytes_max: 1_000_000,
        whole_on_range: true,
    }
}

/// The stored form of a response to GET, which must be storable.
pub(crate) fn stored(status: u16, fields: Fields<'_>, content: &'static str) -> StoredResponse {
    let response = response(status, fields);
    let (terms, _) = judge(&get(&[]), &response, received(), &rules()).unwrap();
    StoredResponse {
        url: "h.example/a?b".into(),
        status: response.status,
        headers: stored_fields(&response.headers, now()),
        terms,
        content: Content::Inline(Bytes::from_static(content.as_bytes())),
        groups: groups(&response.headers),
        shared: None,
        purges: AtomicU64::new(7),
    }
}
