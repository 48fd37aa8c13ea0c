//! A client that downloads, and compares each byte with the expected one.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use tokio::time::{Instant, sleep, timeout};
use watari_body::Body;
use watari_proxy::TransferStatus;
use watari_test_origins::Content;

use super::{Fixture, client};

/// Longer than any piece takes.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// A response that is being received.
pub(crate) struct Download {
    body: Body,
    content: Content,
    /// The number of bytes received.
    pub(crate) position: u64,
    ended: bool,
}

impl Download {
    /// Requests all of `target`, which has this content.
    pub(crate) async fn begin(fixture: &Fixture, target: &str, content: &Content) -> Self {
        let request = Request::get(target).header("host", "example.org").body(Empty::<Bytes>::new()).unwrap();
        Self::of(fixture.proxy.respond(request, &client()).await, content)
    }

    fn of(response: Response<Body>, content: &Content) -> Self {
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), content: content.clone(), position: 0, ended: false }
    }

    /// The length of the next piece, or `None` at the end. The error is the cause if the response is cut.
    pub(crate) async fn piece(&mut self) -> Result<Option<usize>, String> {
        let Some(frame) = timeout(WAIT_MAX, self.body.frame()).await.expect("it comes to an end") else {
            self.ended = true;
            return Ok(None);
        };
        let piece = frame.map_err(|error| error.to_string())?.into_data().unwrap_or_default();
        assert_eq!(self.content.difference(self.position, &piece), None);
        self.position += piece.len() as u64;
        Ok(Some(piece.len()))
    }

    /// Reads until `position` bytes have arrived.
    pub(crate) async fn read_to(&mut self, position: u64) -> Result<(), String> {
        while self.position < position && self.piece().await?.is_some() {}
        Ok(())
    }

    /// Reads to the end. The error is the cause if the response is cut.
    pub(crate) async fn read_to_the_end(&mut self) -> Result<(), String> {
        self.read_to(u64::MAX).await?;
        assert!(self.is_complete(), "what is incomplete ends with an error, but this at {}", self.position);
        Ok(())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.ended && self.position == self.content.len()
    }
}

/// The transfers that could move.
pub(crate) fn transfers(fixture: &Fixture) -> Vec<TransferStatus> {
    fixture.proxy.status().remove(0).transfers
}

/// Waits until the condition holds.
pub(crate) async fn until(mut what: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !what() {
        assert!(Instant::now() < deadline, "in vain");
        sleep(Duration::from_millis(2)).await;
    }
}
