//! Changes of responses that are the same for all routes.

use http::header::ALT_SVC;
use http::{HeaderMap, Request, Response};
use ipnet::IpNet;

use crate::Body;
use crate::client::Client;
use crate::compress::{Accepted, Compression, Compressor};
use crate::error_pages::ErrorPages;
use crate::failure::Failure;
use crate::forwarded::{Claims, TrustedProxies};

/// The settings for all forwarded messages.
#[derive(Debug)]
pub(crate) struct Shape {
    trusted: TrustedProxies,
    pages: ErrorPages,
    compressor: Option<Compressor>,
}

impl Shape {
    pub(crate) fn new(trusted: Vec<IpNet>, pages: ErrorPages, compression: Option<Compression>) -> Self {
        Self { trusted: TrustedProxies::new(trusted), pages, compressor: compression.map(Compressor::new) }
    }

    /// The fields of `client` about its own client, if it is trusted.
    pub(crate) fn claims(&self, headers: &HeaderMap, client: &Client) -> Option<Claims> {
        self.trusted.claims(headers, client)
    }

    /// The properties of a request that decide about compression, if compression is on.
    pub(crate) fn accepted<B>(&self, request: &Request<B>) -> Option<Accepted> {
        self.compressor.as_ref().map(|_| Accepted::of(request.method(), request.headers()))
    }

    /// The response to a request without a response of an origin.
    pub(crate) fn failure(&self, failure: &Failure) -> Response<Body> {
        self.pages.for_own(failure.response())
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
