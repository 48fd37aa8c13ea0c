//! What answers requests.

use http::{Request, Response};
use hyper::body::Incoming;
use watari_files::{Body, Files};
use watari_proxy::{Client, Proxy};

/// What an agent serves.
pub enum Site {
    /// A directory.
    Files(Files),
    /// Origins.
    Proxy(Proxy),
}

impl Site {
    /// Answers one request of `client`.
    pub(crate) async fn respond(&self, request: Request<Incoming>, client: &Client) -> Response<Body> {
        match self {
            Self::Files(files) => files.respond(request).await,
            Self::Proxy(proxy) => proxy.respond(request, client).await,
        }
    }
}
