//! One line for each request, written when the body of its response, or its tunnel, has ended.
//!
//! ```text
//!   Record --ends--> queue (bounded) --> thread --> file
//! ```
//!
//! File writes block, so a separate thread writes the lines, in batches. If the file is too slow, lines are lost and
//! counted. No request waits for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use http::header::{HOST, REFERER, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use prometheus_client::metrics::counter::Counter;

use crate::exchange::address::OriginAddress;
use crate::exchange::client::Client;
use crate::observe::log_line::{Ending, Line, LogFormat};
use crate::observe::metrics::Metrics;

/// A log of requests. Clones write to the same file.
#[derive(Debug, Clone)]
pub struct AccessLog(Arc<Writing>);

#[derive(Debug)]
struct Writing {
    path: PathBuf,
    /// `None` instead of a line: there is a new file.
    lines: Option<SyncSender<Option<Line>>>,
    new_file: NewFile,
    lost: Counter,
    done: Mutex<Receiver<()>>,
}

/// A request. Its line is written when this value is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    log: AccessLog,
    line: Option<Line>,
    begun: Instant,
    trace: Arc<RequestTrace>,
}

/// The origins that a request was sent to.
#[derive(Debug, Default)]
pub(crate) struct RequestTrace {
    origin: Mutex<Option<OriginAddress>>,
    tries: AtomicU32,
    moves: AtomicU32,
    /// How the cache handled it.
    cache: OnceLock<&'static str>,
}

/// The file that the thread writes to from its next batch on, if it was opened again.
type NewFile = Arc<Mutex<Option<File>>>;

/// The access log cannot be opened again. Lines still go to the previous file.
#[derive(Debug, thiserror::Error)]
#[error("cannot reopen the access log {}: {cause}", path.display())]
pub struct ReopenError {
    path: PathBuf,
    cause: io::Error,
}

/// The maximum number of lines that wait to be written.
const QUEUE_LEN: usize = 1024;
/// The maximum length of a part of a request in a line, in bytes. Longer parts are cut, because clients choose their
/// length.
const PART_LEN_MAX: usize = 2048;
/// The length at which a batch is written, in bytes. It may exceed this by one line.
const BATCH_LEN: usize = 64 * 1024;
/// How long the last handle of a log waits for its last lines.
const END_TIMEOUT: Duration = Duration::from_secs(1);

impl AccessLog {
    /// Opens or creates the file, and appends to it.
    pub fn open(path: &Path, format: LogFormat, metrics: &Metrics) -> io::Result<Self> {
        let (lines, received) = sync_channel(QUEUE_LEN);
        let (ended, done) = sync_channel(0);
        let (new_file, lost) = (NewFile::default(), metrics.log_lines_lost());
        let (path, file) = (path.to_owned(), append(path)?);
        let writer = Writer { path: path.clone(), file, format, new_file: Arc::clone(&new_file), lost: lost.clone() };
        thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer.write_all(&received);
            drop(ended);
        })?;
        Ok(Self(Arc::new(Writing { path, lines: Some(lines), new_file, lost, done: Mutex::new(done) })))
    }

    /// Opens the file again, because it may have been renamed. Lines that are not written yet go to the new file. Blocks
    /// until the file is open.
    pub fn reopen(&self) -> Result<(), ReopenError> {
        let file = append(&self.0.path).map_err(|cause| ReopenError { path: self.0.path.clone(), cause })?;
        *lock(&self.0.new_file) = Some(file);
        // Wakes the thread to close the old file now, because the next line may come late. Until then, the old file
        // would exist for this process alone. If the queue is full, the thread is awake already.
        if let Some(lines) = &self.0.lines {
            let _ = lines.try_send(None);
        }
        Ok(())
    }

    /// The record of a request that has just arrived.
    pub(crate) fn begin(&self, request: &Parts, client: &Client, trace: &Arc<RequestTrace>) -> Record {
        let line = Line {
            client: client.address().ip().to_canonical(),
            time: SystemTime::now(),
            method: request.method.clone(),
            target: cut(request.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes()),
            host: host(request),
            version: request.version,
            referer: field(&request.headers, &REFERER),
            user_agent: field(&request.headers, &USER_AGENT),
            status: None,
            bytes: 0,
            duration: Duration::ZERO,
            origin: None,
            tries: 0,
            moves: 0,
            cache: None,
            ending: Ending::ClientLeft,
        };
        Record { log: self.clone(), line: Some(line), begun: Instant::now(), trace: Arc::clone(trace) }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.lines = None;
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner);
        if done.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the access log is not finished in time: its last lines may be missing");
        }
    }
}

impl Record {
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.change(|line| line.status = Some(status));
    }

    /// Counts bytes that are being sent to the client.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.change(|line| line.bytes += bytes as u64);
    }

    pub(crate) fn ended(&mut self, ending: Ending) {
        self.change(|line| line.ending = ending);
    }

    fn change(&mut self, change: impl FnOnce(&mut Line)) {
        self.line.as_mut().map(change);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(mut line) = self.line.take() else { return };
        line.duration = self.begun.elapsed();
        line.origin.clone_from(&self.trace.lock());
        line.tries = self.trace.tries.load(Ordering::Relaxed);
        line.moves = self.trace.moves.load(Ordering::Relaxed);
        line.cache = self.trace.cache.get().copied();
        let Some(lines) = &self.log.0.lines else { return };
        if lines.try_send(Some(line)).is_err() {
            self.log.0.lost.inc();
        }
    }
}

impl RequestTrace {
    /// Called when an origin is tried.
    pub(crate) fn tries(&self, origin: &OriginAddress) {
        self.tries.fetch_add(1, Ordering::Relaxed);
        *self.lock() = Some(origin.clone());
    }

    /// Called when the response continues at another origin.
    pub(crate) fn moves_to(&self, origin: &OriginAddress) {
        self.moves.fetch_add(1, Ordering::Relaxed);
        *self.lock() = Some(origin.clone());
    }

    /// Called once, when the cache has handled the request.
    pub(crate) fn set_cache(&self, result: &'static str) {
        let _ = self.cache.set(result);
    }

    fn lock(&self) -> MutexGuard<'_, Option<OriginAddress>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the thread.
struct Writer {
    path: PathBuf,
    file: File,
    format: LogFormat,
    new_file: NewFile,
    lost: Counter,
}

impl Writer {
    /// Writes until all senders are dropped.
    fn write_all(mut self, lines: &Receiver<Option<Line>>) {
        let mut batch = Vec::new();
        while let Ok(first) = lines.recv() {
            let mut count = 0;
            for line in std::iter::once(first).chain(lines.try_iter()).flatten() {
                line.write(self.format, &mut batch);
                count += 1;
                if batch.len() >= BATCH_LEN {
                    break;
                }
            }
            if let Err((error, lines)) = self.write(&batch) {
                let lost = count - lines;
                let path = self.path.display();
                tracing::error!(%path, %error, lines = lost, "cannot write the access log (agent.proxy.access_log)");
                self.lost.inc_by(lost);
            }
            batch.clear();
        }
    }

    /// Returns an error with the number of lines that were written before it.
    fn write(&mut self, batch: &[u8]) -> Result<(), (io::Error, u64)> {
        if let Some(file) = lock(&self.new_file).take() {
            self.file = file;
        }
        let (before, mut rest) = (self.len(), batch);
        let error = loop {
            if rest.is_empty() {
                return Ok(());
            }
            match self.file.write(rest) {
                Ok(0) => break io::ErrorKind::WriteZero.into(),
                Ok(len) => rest = &rest[len..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
        };
        let written = &batch[..batch.len() - rest.len()];
        let whole = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // The next line would continue the part of a line at the end of the file. It stays if another process of this node
        // has written behind it, in an upgrade.
        if whole < written.len() && self.len() == before.map(|len| len + written.len() as u64) {
            let _ = self.file.set_len(before.unwrap_or(0) + whole as u64);
        }
        let lines = written[..whole].split_inclusive(|byte| *byte == b'\n').count();
        Err((error, lines as u64))
    }

    fn len(&self) -> Option<u64> {
        self.file.metadata().ok().map(|file| file.len())
    }
}

fn lock(new_file: &NewFile) -> MutexGuard<'_, Option<File>> {
    new_file.lock().unwrap_or_else(PoisonError::into_inner)
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// The host of the request, from its target or its `Host` field.
fn host(request: &Parts) -> Box<[u8]> {
    let target = request.uri.authority().map(|authority| cut(authority.as_str().as_bytes()));
    target.or_else(|| field(&request.headers, &HOST)).unwrap_or_default()
}

fn field(headers: &HeaderMap, name: &HeaderName) -> Option<Box<[u8]>> {
    headers.get(name).map(|value| cut(value.as_bytes()))
}

fn cut(text: &[u8]) -> Box<[u8]> {
    text[..text.len().min(PART_LEN_MAX)].into()
}
