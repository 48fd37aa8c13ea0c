//! Server-sent events (HTML, section 9.2): the board, each second.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body_util::Either;
use http_body_util::channel::{Channel, SendError, Sender};
use hyper::body::Bytes;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Body;

/// JSON without line breaks fits into one field.
const BEFORE: Bytes = Bytes::from_static(b"event: board\ndata: ");
const AFTER: Bytes = Bytes::from_static(b"\n\n");
/// A comment, which shows both ends that the peer is alive.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// The latest tick, and each later one.
pub(super) fn respond(
    ticks: watch::Receiver<Bytes>,
    comment_interval: Duration,
    shutdown: CancellationToken,
) -> Response<Body> {
    // The channel has room for one tick, which waits for the previous one.
    let (sender, body) = Channel::new(1);
    tokio::spawn(shutdown.run_until_cancelled_owned(push(ticks, sender, comment_interval)));
    head(Either::Right(body))
}

/// The response head of such a stream.
pub(super) fn head(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Sends ticks until the viewer or their source ends.
async fn push(mut ticks: watch::Receiver<Bytes>, mut viewer: Sender<Bytes>, comment_interval: Duration) {
    ticks.mark_changed();
    loop {
        let changed = match timeout(comment_interval, ticks.changed()).await {
            Ok(Ok(())) => {
                let tick = ticks.borrow_and_update().clone();
                event(&mut viewer, tick).await
            }
            Ok(Err(_)) => return,
            Err(_) => viewer.send_data(COMMENT).await,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Sends an event in three parts. The middle one is shared by all viewers.
async fn event(viewer: &mut Sender<Bytes>, tick: Bytes) -> Result<(), SendError> {
    viewer.send_data(BEFORE).await?;
    viewer.send_data(tick).await?;
    viewer.send_data(AFTER).await
}
