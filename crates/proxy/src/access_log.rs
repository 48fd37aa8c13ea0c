//! One line for each request, when the body of its response, or the tunnel that follows it, has ended.
//!
//! ```text
//!   Record --ends--> queue (bounded) --> thread --> file
//! ```
//!
//! Files block, so that a thread of its own writes them, as much at a time as has come. Where the file does not take lines as
//! fast as they come, some are lost and counted; nobody waits for it.

mod line;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, Request, StatusCode};
use prometheus_client::metrics::counter::Counter;

use crate::Metrics;
use crate::client::Client;
use crate::origin::Origin;
use line::Line;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined format of Apache, which most tools read.
    Combined,
    /// An object of JSON, which also has how long it took, where the response came from and how it ended.
    Json,
}

/// A log of requests. Clones write to the same.
#[derive(Debug, Clone)]
pub struct AccessLog(Arc<Writing>);

#[derive(Debug)]
struct Writing {
    /// `None`: there is no line, and the file is to be opened again.
    lines: Option<SyncSender<Option<Line>>>,
    reopen: Arc<AtomicBool>,
    lost: Counter,
    done: Mutex<Receiver<()>>,
}

/// How the body of a response, or a tunnel, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    /// The client did not take it, or not all of it.
    ClientLeft,
    /// Where it came from did not give all of it, or broke the tunnel off.
    Cut,
    /// Nobody sent anything through the tunnel for too long.
    Silent,
}

/// A request whose line is written when this is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    log: AccessLog,
    line: Option<Line>,
    begun: Instant,
    journey: Arc<Journey>,
}

/// Where the response to a request comes from.
#[derive(Debug, Default)]
pub(crate) struct Journey {
    origin: Mutex<Option<Arc<Origin>>>,
    tries: AtomicU32,
    moves: AtomicU32,
}

/// Lines that wait to be written.
const QUEUE_LEN: usize = 1024;
/// Longer parts of a request are cut off, in bytes: so much of a line is at a client's mercy.
const PART_LEN_MAX: usize = 2048;
/// What is written at once, in bytes; one more line may follow.
const BATCH_LEN: usize = 64 * 1024;
/// How long the end of a log waits for its last lines.
const END_TIMEOUT: Duration = Duration::from_secs(1);

impl AccessLog {
    /// Opens the file, or makes it, and appends to what is in it.
    pub fn open(path: &Path, format: LogFormat, metrics: &Metrics) -> io::Result<Self> {
        let (lines, received) = sync_channel(QUEUE_LEN);
        let (ended, done) = sync_channel(0);
        let (reopen, lost) = (Arc::<AtomicBool>::default(), metrics.log_lines_lost());
        let file = append(path)?;
        let writer = Writer { path: path.to_owned(), file, format, reopen: Arc::clone(&reopen), lost: lost.clone() };
        thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer.write_all(&received);
            drop(ended);
        })?;
        Ok(Self(Arc::new(Writing { lines: Some(lines), reopen, lost, done: Mutex::new(done) })))
    }

    /// Has the file opened again, as the old one may have been renamed: what is not written yet goes to the new one.
    pub fn reopen(&self) {
        self.0.reopen.store(true, Ordering::Relaxed);
        // The file is opened now and not with the next line, which may be long in coming: until then, the old one would exist
        // for this process alone. A full queue needs no message to be looked at.
        if let Some(lines) = &self.0.lines {
            let _ = lines.try_send(None);
        }
    }

    /// A request that has come just now.
    pub(crate) fn begin<B>(&self, request: &Request<B>, client: &Client, journey: &Arc<Journey>) -> Record {
        let line = Line {
            client: client.address().ip().to_canonical(),
            time: SystemTime::now(),
            method: request.method().clone(),
            target: cut(request.uri().path_and_query().map_or("/", |target| target.as_str()).as_bytes()),
            host: host(request),
            version: request.version(),
            referer: field(request.headers(), &REFERER),
            user_agent: field(request.headers(), &USER_AGENT),
            status: None,
            bytes: 0,
            duration: Duration::ZERO,
            origin: None,
            tries: 0,
            moves: 0,
            ending: Ending::ClientLeft,
        };
        Record { log: self.clone(), line: Some(line), begun: Instant::now(), journey: Arc::clone(journey) }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.lines = None;
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner);
        if done.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the last lines of the access log are still to be written");
        }
    }
}

impl Record {
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.change(|line| line.status = Some(status));
    }

    /// So many bytes more are on their way to the client.
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
        line.origin = self.journey.lock().as_ref().map(|origin| origin.address.clone());
        line.tries = self.journey.tries.load(Ordering::Relaxed);
        line.moves = self.journey.moves.load(Ordering::Relaxed);
        let Some(lines) = &self.log.0.lines else { return };
        if lines.try_send(Some(line)).is_err() {
            self.log.0.lost.inc();
        }
    }
}

impl Journey {
    /// An origin is asked.
    pub(crate) fn tries(&self, origin: &Arc<Origin>) {
        self.tries.fetch_add(1, Ordering::Relaxed);
        *self.lock() = Some(Arc::clone(origin));
    }

    /// The response goes on at another one.
    pub(crate) fn moves_to(&self, origin: &Arc<Origin>) {
        self.moves.fetch_add(1, Ordering::Relaxed);
        *self.lock() = Some(Arc::clone(origin));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Origin>>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread works with.
struct Writer {
    path: PathBuf,
    file: File,
    format: LogFormat,
    reopen: Arc<AtomicBool>,
    lost: Counter,
}

impl Writer {
    /// Until nobody can send lines any more.
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
            if let Err(error) = self.write(&batch) {
                tracing::error!(path = %self.path.display(), %error, lines = count, "access log not written");
                self.lost.inc_by(count);
            }
            batch.clear();
        }
    }

    fn write(&mut self, batch: &[u8]) -> io::Result<()> {
        if self.reopen.swap(false, Ordering::Relaxed) {
            match append(&self.path) {
                Ok(file) => self.file = file,
                // What is open still takes lines.
                Err(error) => tracing::error!(path = %self.path.display(), %error, "access log not opened again"),
            }
        }
        self.file.write_all(batch)
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Whom a request is for, as far as that can be said of any.
fn host<B>(request: &Request<B>) -> Box<[u8]> {
    let target = request.uri().authority().map(|authority| cut(authority.as_str().as_bytes()));
    target.or_else(|| field(request.headers(), &HOST)).unwrap_or_default()
}

fn field(headers: &HeaderMap, name: &HeaderName) -> Option<Box<[u8]>> {
    headers.get(name).map(|value| cut(value.as_bytes()))
}

fn cut(text: &[u8]) -> Box<[u8]> {
    text[..text.len().min(PART_LEN_MAX)].into()
}
