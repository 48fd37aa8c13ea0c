//! Changes of responses that are the same for all routes.

use http::Response;
use http::header::ALT_SVC;
use http::request::Parts;
use watari_body::Body;

use crate::exchange::failure::Failure;
use crate::respond::compress::{Accepted, Compression, Compressor};
use crate::respond::error_pages::ErrorPages;
use crate::respond::failures;

/// The settings for all responses.
#[derive(Debug)]
pub(crate) struct Shape {
    pages: ErrorPages,
    compressor: Option<Compressor>,
}

impl Shape {
    pub(crate) fn new(pages: ErrorPages, compression: Option<Compression>) -> Self {
        Self { pages, compressor: compression.map(Compressor::new) }
    }

    /// The properties of a request that decide about compression, if compression is on.
    pub(crate) fn accepted(&self, request: &Parts) -> Option<Accepted> {
        self.compressor.as_ref().map(|_| Accepted::of(&request.method, &request.headers))
    }

    /// The response to a request without a response of an origin.
    pub(crate) fn failure(&self, failure: &Failure) -> Response<Body> {
        self.pages.for_own(failures::response(failure))
    }

    /// Changes an origin's response. Removes `Alt-Svc`: clients would use the named services for this host (RFC 7838,
    /// section 2.1), but can reach the origin only through this proxy.
    pub(crate) fn answer(&self, mut response: Response<Body>) -> Response<Body> {
        response.headers_mut().remove(ALT_SVC);
        self.pages.for_origin(response)
    }

    /// The last step for any response.
    pub(crate) fn finish(&self, response: Response<Body>, accepted: Option<Accepted>) -> Response<Body> {
        match (&self.compressor, accepted) {
            (Some(compressor), Some(accepted)) => compressor.compress(response, accepted),
            _ => response,
        }
    }
}
