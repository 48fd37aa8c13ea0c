//! An origin in this process. It counts its requests, and can hold a response back.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, doing};
use crate::site::{SMALL, Site};

/// The path of the content that the origin sends slowly, after [`Origin::release`].
pub(super) const HELD_PATH: &str = "/held.bin";
/// Its length, and its rate.
pub(super) const HELD_LEN: u64 = 100 << 20;
const HELD_BYTES_PER_S: u64 = 100_000_000;

/// Content repeats itself after so many bytes, as that of the site's small file.
const PERIOD: usize = 251;
/// Bytes that are written at once.
const PIECE_LEN: usize = 64 << 10;

/// Serves contents that caches may store for an hour, until it is dropped: the site's small file, [`HELD_PATH`], and
/// the contents of a catalogue by their number.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

/// What the threads of the connections share.
struct Shared {
    len_of: Box<dyn Fn(usize) -> Option<u64> + Send + Sync>,
    /// Requests, without those for the small file.
    requests: AtomicU64,
    /// Bytes of content sent, without those of the small file.
    bytes: AtomicU64,
    is_over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    release: Mutex<Release>,
    released: Condvar,
}

#[derive(Default)]
struct Release {
    is_released: bool,
    /// When the first byte of the held response was about to be written.
    first_byte: Option<Instant>,
}

struct Request {
    path: String,
    range: Option<String>,
}

impl Origin {
    /// `len_of` returns the length of the content with a number.
    pub(super) fn start(
        site: &Site,
        len_of: impl Fn(usize) -> Option<u64> + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let listener = TcpListener::bind(site.address()?).map_err(doing("binding an origin"))?;
        let address = listener.local_addr().map_err(doing("reading an origin's address"))?;
        let shared = Arc::new(Shared {
            len_of: Box::new(len_of),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            streams: Mutex::default(),
            release: Mutex::default(),
            released: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Ok(Self { address, shared })
    }

    pub(super) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Sends the content of [`HELD_PATH`], which requests have to wait for. Returns when its first byte is written.
    pub(super) fn release(&self) -> Instant {
        let mut release = self.shared.release();
        release.is_released = true;
        self.shared.released.notify_all();
        loop {
            match release.first_byte {
                Some(first_byte) => return first_byte,
                None => release = self.shared.wait(release),
            }
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // The listener looks whether it is over.
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        let Ok(handle) = stream.try_clone() else { return };
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        shared.streams.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // An error only ends the connection.
            let _ = shared.serve(&stream);
            // The list of connections still has a handle of it.
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        let pattern: Vec<u8> = (0..PERIOD + PIECE_LEN).map(|at| (at % PERIOD) as u8).collect();
        while let Some(request) = read_request(&mut reader)? {
            self.answer(&request, &pattern, stream)?;
        }
        Ok(())
    }

    fn answer(&self, request: &Request, pattern: &[u8], mut stream: &TcpStream) -> io::Result<()> {
        let is_small = request.path == SMALL.path;
        if !is_small {
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
        let Some(len) = self.len(&request.path) else {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        };
        let asked = request.range.as_deref().and_then(|range| parse_range(range, len));
        let range = asked.clone().unwrap_or(0..len);
        let status = match &asked {
            None => "200 OK".to_owned(),
            Some(Range { start, end }) => {
                format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{len}", end - 1)
            }
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nETag: \"{len}\"\r\n\
             Accept-Ranges: bytes\r\nCache-Control: max-age=3600\r\n\r\n",
            range.end - range.start
        );
        let is_held = request.path == HELD_PATH;
        if is_held {
            self.hold();
        }
        let begun = Instant::now();
        let (mut at, mut head) = (range.start, head.into_bytes());
        while at < range.end {
            let from = (at % PERIOD as u64) as usize;
            let piece_len = (range.end - at).min(PIECE_LEN as u64);
            head.extend_from_slice(&pattern[from..from + piece_len as usize]);
            stream.write_all(&head)?;
            head.clear();
            at += piece_len;
            if is_held {
                let due = Duration::from_secs_f64((at - range.start) as f64 / HELD_BYTES_PER_S as f64);
                thread::sleep(due.saturating_sub(begun.elapsed()));
            }
            if !is_small {
                self.bytes.fetch_add(piece_len, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn len(&self, path: &str) -> Option<u64> {
        match path {
            HELD_PATH => Some(HELD_LEN),
            _ if path == SMALL.path => Some(SMALL.len),
            _ => (self.len_of)(path.strip_prefix('/')?.parse().ok()?),
        }
    }

    /// Waits for the release.
    fn hold(&self) {
        let mut release = self.release();
        while !release.is_released {
            release = self.wait(release);
        }
        release.first_byte.get_or_insert_with(Instant::now);
        self.released.notify_all();
    }

    fn release(&self) -> MutexGuard<'_, Release> {
        self.release.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, release: MutexGuard<'a, Release>) -> MutexGuard<'a, Release> {
        self.released.wait(release).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next request. `None`: the connection has ended.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).ok_or(io::ErrorKind::InvalidData)?.to_owned();
    let mut range = None;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("range") => range = Some(value.trim().to_owned()),
            Some(_) => {}
            None => return Ok(Some(Request { path, range })),
        }
    }
}

/// One range with a first position (RFC 9110, section 14.1.2). `None`: the whole content is sent.
fn parse_range(range: &str, len: u64) -> Option<Range<u64>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let end = if last.is_empty() { len } else { last.parse::<u64>().ok()?.checked_add(1)?.min(len) };
    (first < end).then_some(first..end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Read;

    use super::*;

    #[test]
    fn ranges() {
        for (range, expected) in [
            ("bytes=0-", Some(0..10)),
            ("bytes=3-5", Some(3..6)),
            ("bytes=3-50", Some(3..10)),
            ("bytes=10-", None),
            ("bytes=-3", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
        ] {
            assert_eq!(parse_range(range, 10), expected, "{range}");
        }
    }

    #[test]
    fn contents_are_those_of_the_paths() {
        let site = Site::create().unwrap();
        let origin = Origin::start(&site, |number| (number == 7).then_some(100_000)).unwrap();
        let mut stream = TcpStream::connect(origin.address).unwrap();
        stream
            .write_all(
                b"GET /small.bin HTTP/1.1\r\n\r\nGET /7 HTTP/1.1\r\nRange: bytes=99998-\r\n\r\nGET /8 HTTP/1.1\r\n\r\n",
            )
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        let small = received.windows(SMALL.len as usize).any(|window| window == SMALL.content());
        assert!(small);
        let text = String::from_utf8_lossy(&received);
        assert!(text.contains("Content-Range: bytes 99998-99999/100000\r\n"), "{text}");
        assert!(text.ends_with("404 Not Found\r\nContent-Length: 0\r\n\r\n"), "{text}");
        assert_eq!((origin.requests(), origin.bytes()), (2, 2));
    }
}
