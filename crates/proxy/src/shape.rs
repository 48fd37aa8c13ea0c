//! What is made of responses before clients see them, whichever route they came by.

use http::header::ALT_SVC;
use http::{HeaderMap, Request, Response};
use ipnet::IpNet;

use crate::Body;
use crate::client::Client;
use crate::compress::{Accepted, Compression, Compressor};
use crate::error_pages::ErrorPages;
use crate::failure::Failure;
use crate::forwarded::{Claims, TrustedProxies};

/// What a proxy changes of all that it forwards.
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

    /// What `client` says of clients of its own, if it may.
    pub(crate) fn claims(&self, headers: &HeaderMap, client: &Client) -> Option<Claims> {
        self.trusted.claims(headers, client)
    }

    /// What a request says about how it may be answered, if that makes a difference.
    pub(crate) fn accepted<B>(&self, request: &Request<B>) -> Option<Accepted> {
        self.compressor.as_ref().map(|_| Accepted::of(request.method(), request.headers()))
    }

    /// The answer to a request that no origin has answered.
    pub(crate) fn failure(&self, failure: &Failure) -> Response<Body> {
        self.pages.for_own(failure.response())
    }

    /// The answer of an origin. The services that it names are its own, and clients have no way to it but this one (RFC 7838,
    /// section 2.1, has them take what it names for this host).
    pub(crate) fn answer(&self, mut response: Response<Body>) -> Response<Body> {
        response.headers_mut().remove(ALT_SVC);
        self.pages.for_origin(response)
    }

    /// The last that happens to any response.
    pub(crate) fn finish(&self, response: Response<Body>, accepted: Option<Accepted>) -> Response<Body> {
        match (&self.compressor, accepted) {
            (Some(compressor), Some(accepted)) => compressor.compress(response, accepted),
            _ => response,
        }
    }
}
