//! An HTTP/2 connection that carries many requests at once.

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

/// A connection in use. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) route: Route,
    sender: SendRequest<Bytes>,
    ledger: Arc<Mutex<Ledger>>,
    /// Dropped after the sender, so that [`drive`] sees that the connection ends.
    _in_use: DropGuard,
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct RunningStream {
    pub(super) stream: u32,
    pub(super) response: ResponseFuture,
    /// The body. Dropping it before its end cuts the body off.
    pub(super) _body: SendStream<Bytes>,
    /// The number of this request on the connection, from 1.
    pub(super) number: u64,
}

impl Connection {
    /// Starts HTTP/2. Does not wait for the server, because requests may be sent at once (RFC 9113, section 3.4).
    pub(super) async fn new(run: &Arc<Run>, opened: Opened) -> Result<Self, Ending> {
        let ledger = Arc::new(Mutex::new(Ledger::new(opened.sample)));
        let wire = Wire::new(opened.stream, run, &ledger);
        let (sender, connection) = match settings().handshake(wire).await {
            Ok(both) => both,
            Err(error) => {
                let error = error.into_io().unwrap_or_else(|| std::io::ErrorKind::Other.into());
                let ending = stream::cut(&error, Phase::Request);
                drop(EndReport { run, ledger: &ledger, ending });
                return Err(ending);
            }
        };
        let released = CancellationToken::new();
        run.connections.spawn(drive(Arc::clone(run), connection, Arc::clone(&ledger), released.clone()));
        Ok(Self { route: opened.route, sender, ledger, _in_use: released.drop_guard() })
    }

    /// Sends a request on a new stream.
    pub(super) fn begin(&self, request: &Request) -> Result<RunningStream, h2::Error> {
        // A clone, because each sender remembers the last request that it could not send at once, and waits for it.
        let mut sender = self.sender.clone();
        let (response, mut body) = sender.send_request(request.parts.clone(), request.body.is_empty())?;
        if !request.body.is_empty() {
            body.send_data(request.body.clone(), true)?;
        }
        let stream = response.stream_id().as_u32();
        let number = self.ledger().begin(stream);
        Ok(RunningStream { stream, response, _body: body, number })
    }

    /// The counts and times of the connection.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.ledger)
    }
}

/// The client's settings and limits.
fn settings() -> Builder {
    let mut settings = Builder::new();
    settings
        .enable_push(false)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        // The client counts streams that violate the rules. Their number does not end the connection.
        .max_local_error_reset_streams(None);
    settings
}

/// The flow-control windows of streams and of the connection, in bytes. Bodies are read at once, so large windows take
/// no memory. With smaller ones, the benchmark would measure the window.
const WINDOW_BYTES: u32 = (1 << 30) - 1;

/// Maximum size of the header fields of one response, in bytes (RFC 9113, section 6.5.2).
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

/// Drives the I/O of a connection until it ends, and records how it ended.
async fn drive(
    run: Arc<Run>,
    mut connection: h2::client::Connection<Wire, Bytes>,
    ledger: Arc<Mutex<Ledger>>,
    released: CancellationToken,
) {
    // Cutting off a run drops this future. The connection is recorded all the same.
    let mut report = EndReport { run: &run, ledger: &ledger, ending: CLOSED_HERE };
    report.ending = tokio::select! {
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

/// Records the ending of a connection when dropped.
struct EndReport<'a> {
    run: &'a Run,
    ledger: &'a Mutex<Ledger>,
    ending: Ending,
}

impl Drop for EndReport<'_> {
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

/// The client closed the connection after its last use.
const CLOSED_HERE: Ending = Ending { kind: EndingKind::Normal, phase: Phase::Close, side: Side::Client };

/// The server did not accept the remaining bytes within the response timeout.
const NOT_LET_GO: Ending = Ending { kind: EndingKind::Timeout, phase: Phase::Close, side: Side::Server };
