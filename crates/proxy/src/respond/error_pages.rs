//! Pages that clients see after failures.

use std::str::FromStr;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use watari_body::Body;

/// Pages that replace the bodies of failures.
#[derive(Debug, Clone, Default)]
pub struct ErrorPages {
    /// Pages of single statuses first: they take precedence over those of a class.
    pages: Vec<(Statuses, ErrorPage)>,
    intercept: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    pub content: Bytes,
    /// The media type.
    pub content_type: HeaderValue,
}

/// The statuses of a page: one from 400 to 599 (`503`), or all of a class (`4xx`, `5xx`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statuses {
    One(StatusCode),
    /// The statuses that begin with this digit.
    Class(u16),
}

/// The text is not a [`Statuses`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a status from 400 to 599, or 4xx or 5xx")]
pub struct InvalidStatuses;

impl ErrorPages {
    /// Makes an empty set. `intercept`: the pages also replace the bodies of origins' failures.
    pub fn new(intercept: bool) -> Self {
        Self { pages: Vec::new(), intercept }
    }

    /// Sets the page of `statuses`.
    pub fn add(&mut self, statuses: Statuses, page: ErrorPage) {
        self.pages.retain(|(others, _)| *others != statuses);
        self.pages.push((statuses, page));
        self.pages.sort_by_key(|(statuses, _)| *statuses);
    }

    /// Replaces the body of the proxy's own failure.
    pub(super) fn for_own(&self, response: Response<Body>) -> Response<Body> {
        match self.page(response.status()) {
            Some(page) => page.stand_in(response),
            None => response,
        }
    }

    /// Replaces the body of an origin's failure, if pages intercept these.
    pub(super) fn for_origin(&self, response: Response<Body>) -> Response<Body> {
        if self.intercept { self.for_own(response) } else { response }
    }

    fn page(&self, status: StatusCode) -> Option<&ErrorPage> {
        self.pages.iter().find(|(statuses, _)| statuses.include(status)).map(|(_, page)| page)
    }
}

impl ErrorPage {
    /// Replaces the body, and removes the fields that describe the old one. Challenges, cookies and `Retry-After` stay.
    fn stand_in(&self, mut response: Response<Body>) -> Response<Body> {
        let headers = response.headers_mut();
        for name in &DESCRIPTIONS {
            headers.remove(name);
        }
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
        headers.insert(header::CONTENT_LENGTH, self.content.len().into());
        let content = Full::from(self.content.clone()).map_err(|never| match never {});
        response.map(|_| content.boxed_unsync())
    }
}

impl Statuses {
    fn include(self, status: StatusCode) -> bool {
        match self {
            Self::One(one) => one == status,
            Self::Class(class) => status.as_u16() / 100 == class,
        }
    }
}

impl FromStr for Statuses {
    type Err = InvalidStatuses;

    fn from_str(text: &str) -> Result<Self, InvalidStatuses> {
        match text {
            "4xx" => Ok(Self::Class(4)),
            "5xx" => Ok(Self::Class(5)),
            _ => {
                let is_failure = |status: &StatusCode| status.is_client_error() || status.is_server_error();
                text.parse().ok().filter(is_failure).map(Self::One).ok_or(InvalidStatuses)
            }
        }
    }
}

/// Fields about a body, and about its freshness.
const DESCRIPTIONS: [HeaderName; 14] = [
    header::ACCEPT_RANGES,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_LOCATION,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::TRAILER,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn page(text: &'static str) -> ErrorPage {
        ErrorPage { content: Bytes::from_static(text.as_bytes()), content_type: HeaderValue::from_static("text/html") }
    }

    #[test]
    fn a_status_counts_before_its_class() {
        let mut pages = ErrorPages::default();
        for (statuses, text) in [("5xx", "any"), ("503", "old"), ("503", "one"), ("404", "missing")] {
            pages.add(statuses.parse().unwrap(), page(text));
        }
        for (status, expected) in
            [(503, Some("one")), (502, Some("any")), (404, Some("missing")), (403, None), (200, None)]
        {
            let found = pages.page(StatusCode::from_u16(status).unwrap());
            assert_eq!(found, expected.map(page).as_ref(), "{status}");
        }
    }

    #[test]
    fn what_is_no_failure_has_no_page() {
        for text in ["", "200", "399", "600", "3xx", "xxx", "4XX", "+404", "0404", " 404"] {
            assert_eq!(text.parse::<Statuses>(), Err(InvalidStatuses), "{text}");
        }
    }
}
