//! A connection that carries requests of HTTP/2, many at once.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ledger::Ledger;
use super::wire::{Wire, locked};
use crate::connect::{Opened, Route};
use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::request::Request;
use crate::run::Run;
use crate::sample::ConnectionSample;
use crate::stream;

/// The connection, as long as anybody has a use for it: when it is dropped, it is closed.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) route: Route,
    sender: SendRequest<Bytes>,
    ledger: Arc<Mutex<Ledger>>,
    /// Dropped behind the sender: whoever sees this sees a connection that ends.
    _in_use: DropGuard,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) stream: u32,
    pub(super) response: ResponseFuture,
    /// The body. Dropped before its end, it is cut off.
    pub(super) _body: SendStream<Bytes>,
    /// How many requests the connection has begun to carry.
    pub(super) number: u64,
}

impl Connection {
    /// Begins to speak HTTP/2. Does not wait for the server: requests may be sent at once (RFC 9113, section 3.4).
    pub(super) async fn new(run: &Arc<Run>, opened: Opened) -> Result<Self, Ending> {
        let ledger = Arc::new(Mutex::new(Ledger::new(opened.sample)));
        let wire = Wire::new(opened.stream, run, &ledger);
        let (sender, connection) = match settings().handshake(wire).await {
            Ok(both) => both,
            Err(error) => {
                let error = error.into_io().unwrap_or_else(|| std::io::ErrorKind::Other.into());
                let ending = stream::cut(&error, Phase::Request);
                drop(Telling { run, ledger: &ledger, ending });
                return Err(ending);
            }
        };
        let released = CancellationToken::new();
        run.connections.spawn(drive(Arc::clone(run), connection, Arc::clone(&ledger), released.clone()));
        Ok(Self { route: opened.route, sender, ledger, _in_use: released.drop_guard() })
    }

    /// Sends a request on a stream of its own.
    pub(super) fn begin(&self, request: &Request) -> Result<Begun, h2::Error> {
        // A clone, since each sender remembers the last request it could not send at once, and waits for that.
        let mut sender = self.sender.clone();
        let (response, mut body) = sender.send_request(request.parts.clone(), request.body.is_empty())?;
        if !request.body.is_empty() {
            body.send_data(request.body.clone(), true)?;
        }
        let stream = response.stream_id().as_u32();
        let number = self.ledger().begin(stream);
        Ok(Begun { stream, response, _body: body, number })
    }

    /// What is known of it.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.ledger)
    }
}

/// What is told to servers, and expected of them.
fn settings() -> Builder {
    let mut settings = Builder::new();
    settings
        .enable_push(false)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        // Streams that break the rules are counted here; their number is no reason to end the connection.
        .max_local_error_reset_streams(None);
    settings
}

/// What a server may send before it is told that it was read. Bodies are read at once, so that this holds no memory; a smaller window
/// would measure the window.
const WINDOW_BYTES: u32 = (1 << 30) - 1;

/// Header fields of one response (RFC 9113, section 6.5.2).
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

/// Moves the bytes of a connection until it ends, and says how it ended.
async fn drive(
    run: Arc<Run>,
    mut connection: h2::client::Connection<Wire, Bytes>,
    ledger: Arc<Mutex<Ledger>>,
    released: CancellationToken,
) {
    // Whoever breaks a run off drops this; the connection is told of all the same.
    let mut telling = Telling { run: &run, ledger: &ledger, ending: CLOSED_HERE };
    telling.ending = tokio::select! {
        biased;
        result = &mut connection => {
            if released.is_cancelled() { CLOSED_HERE } else { locked(&ledger).ending(&result) }
        }
        () = released.cancelled() => {
            let closed = timeout(run.plan.timeouts.response, &mut connection).await;
            if closed.is_ok() { CLOSED_HERE } else { NOT_LET_GO }
        }
    };
    drop(connection);
}

/// Says at its end how a connection ended.
struct Telling<'a> {
    run: &'a Run,
    ledger: &'a Mutex<Ledger>,
    ending: Ending,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        let (sample, no_http2) = {
            let ledger = locked(self.ledger);
            (ledger.sample.clone(), ledger.no_http2(self.ending))
        };
        if let Some(cause) = no_http2 {
            self.run.shared.causes.add(cause.to_owned(), 1);
        }
        self.run.connection_ended(&ConnectionSample { closed: self.run.now(), ending: self.ending, ..sample });
    }
}

/// Nobody had a use for it any more.
const CLOSED_HERE: Ending = Ending { kind: EndingKind::Normal, phase: Phase::Close, side: Side::Client };

/// The server did not take what was still to be written.
const NOT_LET_GO: Ending = Ending { kind: EndingKind::Timeout, phase: Phase::Close, side: Side::Server };
