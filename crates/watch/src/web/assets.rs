//! The page's files, which `build.rs` bundles.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) path: &'static str,
    content_type: &'static str,
    etag: &'static str,
    /// Its name contains a digest of its content, so browsers may store it forever.
    is_immutable: bool,
    body: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The file at a path.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(all(test, feature = "page"))]
pub(super) fn all() -> impl Iterator<Item = &'static Asset> {
    ASSETS.iter()
}

impl Asset {
    /// The file, or 304 if the browser has it (RFC 9110, section 13.1.2).
    pub(super) fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let known = request.headers().get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        let mut tags = known.flat_map(|tags| tags.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
        let is_known = tags.any(|tag| tag == self.etag || tag == "*");
        let mut response = Response::new(Full::new(if is_known { Bytes::new() } else { self.body.into() }));
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let caching = if self.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(ETAG, HeaderValue::from_static(self.etag));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
        response
    }
}
