//! What answers requests.

use bytes::Bytes;
use http::{Request, Response};
use watari_files::{Body, BoxError, Files};
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
    pub(crate) async fn respond<B>(&self, request: Request<B>, client: &Client) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match self {
            Self::Files(files) => files.respond(request).await,
            Self::Proxy(proxy) => proxy.respond(request, client).await,
        }
    }
}
