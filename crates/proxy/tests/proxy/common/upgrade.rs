//! A client that asks to speak something else, and what it gets.

use std::time::Duration;

use bytes::Bytes;
use http::request::Builder;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;
use watari_proxy::{Body, Tunnel, TunnelBroken};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_mins(10);

/// An origin agrees to [`echo`].
pub(crate) const AGREED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Own: 1\r\n\r\n";

pub(crate) fn echo() -> Builder {
    Request::get("/").header("host", "example.org").header("connection", "upgrade").header("upgrade", "echo")
}

pub(crate) fn get_echo() -> Request<Empty<Bytes>> {
    echo().body(Empty::new()).unwrap()
}

/// The client's end of the tunnel that follows `response`, and how the tunnel ends.
pub(crate) fn join(
    mut response: Response<Body>,
    silence_max: Duration,
) -> (DuplexStream, JoinHandle<Result<(), TunnelBroken>>) {
    let tunnel = Tunnel::take(&mut response).expect("a tunnel follows");
    assert!(Tunnel::take(&mut response).is_none());
    let (client, near) = duplex(1 << 16);
    (client, tokio::spawn(tunnel.join(near, silence_max)))
}
