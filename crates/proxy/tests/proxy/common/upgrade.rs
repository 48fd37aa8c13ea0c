//! A client that requests an upgrade, and its end of the tunnel.

use std::time::Duration;

use bytes::Bytes;
use http::request::Builder;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;
use watari_body::Body;
use watari_proxy::{Tunnel, TunnelBroken};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_mins(10);

/// An origin's response that accepts [`echo`].
pub(crate) const AGREED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Own: 1\r\n\r\n";

pub(crate) fn echo() -> Builder {
    Request::get("/").header("host", "example.org").header("connection", "upgrade").header("upgrade", "echo")
}

pub(crate) fn get_echo() -> Request<Empty<Bytes>> {
    echo().body(Empty::new()).unwrap()
}

/// The client's end of the tunnel that comes with `response`, and the result of the tunnel.
pub(crate) fn join(
    mut response: Response<Body>,
    silence_max: Duration,
) -> (DuplexStream, JoinHandle<Result<(), TunnelBroken>>) {
    let mut tunnel = Tunnel::take(&mut response).expect("a tunnel follows");
    assert!(Tunnel::take(&mut response).is_none());
    let (client, mut near) = duplex(1 << 16);
    (client, tokio::spawn(async move { tunnel.join(&mut near, silence_max).await }))
}
