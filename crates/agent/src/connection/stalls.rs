//! Detects clients that do not take the responses they requested, or do not send the rest of their requests.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

/// The number of checks after which a transfer counts as stalled. The first may follow at once.
const LOOKS_MAX: u8 = 5;
/// The number of checks within the transfer timeout.
pub(crate) const LOOKS_PER_TIMEOUT: u32 = LOOKS_MAX as u32 - 1;
/// The transfer does not wait for the client, so checks do not count.
const NOT_THE_CLIENT: u8 = u8::MAX;

/// The bodies in transfer on all connections. One timer checks all of them, so that a connection needs none.
#[derive(Default)]
pub(crate) struct Transfers {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    transfers: BTreeMap<u64, Arc<Transfer>>,
}

/// The stalled transfers of one connection.
#[derive(Default)]
pub(crate) struct Stalls {
    stalled: AtomicUsize,
    notify: Notify,
}

/// A request and its response. If the bodies of both stall, they count once.
pub(crate) struct Exchange {
    connection: Arc<Stalls>,
    /// Number of stalled bodies. It can be negative for a moment, because the end of a stall may be counted before its
    /// start.
    stalled: Mutex<i8>,
}

/// A body on its way to or from a client.
struct Transfer {
    /// The number of checks since the transfer began to wait for the client, or [`NOT_THE_CLIENT`].
    looks: AtomicU8,
    exchange: Arc<Exchange>,
}

/// The client takes nothing of a response, or sends nothing of a request.
#[derive(Debug, thiserror::Error)]
#[error("the client read nothing of a response, or sent nothing of a request, in time")]
pub(crate) struct Stalled;

impl Transfers {
    /// Watches a response's body until it is dropped. The connection polls the body when there is room for more. So the
    /// transfer waits for the client after each frame. It also waits from the start, because in HTTP/2 the first poll
    /// depends on the client's window.
    pub(crate) fn send<B>(self: &Arc<Self>, body: B, exchange: &Arc<Exchange>) -> Watched<B> {
        Watched { body, is_request: false, entry: Some(self.enter(0, exchange)) }
    }

    /// Watches a request's body until it is dropped. The transfer waits for the client while the body is pending. Most
    /// requests have no body, so there is nothing to watch.
    pub(crate) fn receive<B: Body>(self: &Arc<Self>, body: B, exchange: &Arc<Exchange>) -> Watched<B> {
        let entry = (!body.is_end_stream()).then(|| self.enter(NOT_THE_CLIENT, exchange));
        Watched { body, is_request: true, entry }
    }

    fn enter(self: &Arc<Self>, looks: u8, exchange: &Arc<Exchange>) -> Entry {
        let transfer = Arc::new(Transfer { looks: AtomicU8::new(looks), exchange: exchange.clone() });
        let mut entries = self.entries();
        let number = entries.next;
        entries.next += 1;
        entries.transfers.insert(number, transfer.clone());
        Entry { transfers: self.clone(), number, transfer }
    }

    /// Checks every transfer, and notifies the connections of stalled ones. Returns how many began to stall.
    pub(crate) fn look(&self) -> usize {
        self.entries().transfers.values().filter(|transfer| transfer.look()).count()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stalls {
    /// Waits until a transfer stalls. It returns at every check while one does.
    pub(crate) async fn next_stall(&self) {
        self.notify.notified().await;
    }

    /// Forgets a notification that came while the connection was fenced: nothing was sent to the client.
    pub(crate) fn forget(&self) {
        pin!(self.notify.notified()).enable();
    }

    /// The number of stalled exchanges, in one or both directions.
    pub(crate) fn count(&self) -> usize {
        self.stalled.load(Ordering::Relaxed)
    }
}

impl Exchange {
    pub(crate) fn on(connection: &Arc<Stalls>) -> Arc<Self> {
        Arc::new(Self { connection: connection.clone(), stalled: Mutex::default() })
    }

    /// Adds `change` to the number of stalled bodies.
    fn count(&self, change: i8) {
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *stalled > 0;
        *stalled += change;
        match (before, *stalled > 0) {
            (false, true) => self.connection.stalled.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.connection.stalled.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }
}

impl Transfer {
    /// Counts one check. Returns whether the transfer begins to stall.
    fn look(&self) -> bool {
        let one_more = |looks| (looks < LOOKS_MAX).then(|| looks + 1);
        let looked = self.looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let begins = looked == Ok(LOOKS_MAX - 1);
        if begins {
            self.exchange.count(1);
        }
        if begins || looked == Err(LOOKS_MAX) {
            self.exchange.connection.notify.notify_one();
        }
        begins
    }

    fn set(&self, looks: u8) {
        if self.looks.swap(looks, Ordering::Relaxed) == LOOKS_MAX {
            self.exchange.count(-1);
        }
    }
}

/// A body, and its entry among the transfers.
pub(crate) struct Watched<B> {
    body: B,
    is_request: bool,
    entry: Option<Entry>,
}

impl<B> Watched<B> {
    pub(crate) fn body(&self) -> &B {
        &self.body
    }
}

/// Keeps the transfer among those that are checked until it is dropped.
struct Entry {
    transfers: Arc<Transfers>,
    number: u64,
    transfer: Arc<Transfer>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.transfers.entries().transfers.remove(&self.number);
        self.transfer.set(NOT_THE_CLIENT);
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if let Some(entry) = &this.entry {
            let waits_for_client = frame.is_ready() != this.is_request;
            entry.transfer.set(if waits_for_client { 0 } else { NOT_THE_CLIENT });
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::Waker;

    use http_body_util::Full;

    use super::*;

    /// A body that never yields a frame.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    fn looks(transfers: &Transfers, count: u8) -> usize {
        (0..count).map(|_| transfers.look()).sum()
    }

    fn poll(body: &mut (impl Body + Unpin)) {
        let _ = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
    }

    #[test]
    fn a_response_that_nobody_takes_stalls_once() {
        let (transfers, stalls) = (Arc::new(Transfers::default()), Arc::default());
        let exchange = Exchange::on(&stalls);
        let mut response = transfers.send(Full::new(Bytes::from_static(b"piece")), &exchange);
        assert_eq!((looks(&transfers, LOOKS_MAX - 1), stalls.count()), (0, 0));
        assert_eq!((looks(&transfers, LOOKS_MAX), stalls.count()), (1, 1));
        poll(&mut response);
        assert_eq!((looks(&transfers, LOOKS_MAX - 1), stalls.count()), (0, 0), "the client has taken something");
        assert_eq!((looks(&transfers, LOOKS_MAX), stalls.count()), (1, 1));
        drop(response);
        assert_eq!((looks(&transfers, LOOKS_MAX), stalls.count()), (0, 0));
        assert!(transfers.entries().transfers.is_empty());
    }

    #[tokio::test]
    async fn a_stall_while_a_connection_is_fenced_is_forgotten() {
        let (transfers, stalls) = (Arc::new(Transfers::default()), Arc::<Stalls>::default());
        let _response = transfers.send(Full::new(Bytes::from_static(b"piece")), &Exchange::on(&stalls));
        looks(&transfers, LOOKS_MAX);
        stalls.forget();
        let mut next = pin!(stalls.next_stall());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(cx).is_pending());
        looks(&transfers, 1);
        assert!(next.poll(cx).is_ready(), "the client still takes nothing");
    }

    #[test]
    fn a_request_that_nothing_comes_of_stalls() {
        let (transfers, stalls) = (Arc::new(Transfers::default()), Arc::default());
        let exchange = Exchange::on(&stalls);
        let mut request = transfers.receive(Silent, &exchange);
        assert_eq!((looks(&transfers, 2 * LOOKS_MAX), stalls.count()), (0, 0), "nobody has asked for it yet");
        poll(&mut request);
        assert_eq!((looks(&transfers, LOOKS_MAX), stalls.count()), (1, 1));

        let mut coming = transfers.receive(Full::new(Bytes::from_static(b"piece")), &Exchange::on(&stalls));
        poll(&mut coming);
        assert_eq!((looks(&transfers, 2 * LOOKS_MAX), stalls.count()), (0, 1));

        let watched = transfers.entries().transfers.len();
        let _none = transfers.receive(Full::new(Bytes::new()), &exchange);
        assert_eq!(transfers.entries().transfers.len(), watched, "nothing is waited for where nothing is announced");
    }

    #[test]
    fn an_exchange_that_stalls_both_ways_counts_once() {
        let (transfers, stalls) = (Arc::new(Transfers::default()), Arc::default());
        let exchange = Exchange::on(&stalls);
        let (mut request, response) = (transfers.receive(Silent, &exchange), transfers.send(Silent, &exchange));
        poll(&mut request);
        assert_eq!((looks(&transfers, LOOKS_MAX), stalls.count()), (2, 1));
        let other = transfers.send(Silent, &Exchange::on(&stalls));
        assert_eq!((looks(&transfers, LOOKS_MAX), stalls.count()), (1, 2));
        drop(response);
        assert_eq!(stalls.count(), 2, "the request stalls still");
        drop(request);
        assert_eq!(stalls.count(), 1);
        drop(other);
        assert_eq!(stalls.count(), 0);
    }

    #[test]
    fn a_response_that_waits_for_its_origin_does_not_stall() {
        let (transfers, stalls) = (Arc::new(Transfers::default()), Arc::default());
        let exchange = Exchange::on(&stalls);
        let mut response = transfers.send(Silent, &exchange);
        poll(&mut response);
        assert_eq!((looks(&transfers, 2 * LOOKS_MAX), stalls.count()), (0, 0));
    }
}
