//! The access list: the requests, their source addresses, and the expected responses.
//!
//! Imports: `round` for the order of the lines; `excerpt` for errors.

mod class;
mod error;
mod fields;
mod line;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

pub use class::{CLASSES_MAX, OTHER};
pub use error::LineError;
pub use line::{Ask, Line};

use crate::round::{Round, RoundError};
use class::Classes;

/// Requests in the order of a list, each as often as its weight says.
///
/// The list is read into memory before a run. A line has the paper's three columns (anma-enma, section 3), and any
/// number of options. [`Line`] describes the format:
///
/// ```text
/// # source       URI           TLS
/// 192.168.10.13  /index.html   0
/// 2001:db8::7    /form.cgi     1    method=POST header="Content-Type: text/plain" body=form.txt status=303
/// -              /large.bin    1    weight=3 class=large
/// ```
///
/// Lines with the same request share one [`Request`], so that millions of lines cost 32 bytes each.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessList {
    entries: Vec<Entry>,
    classes: Vec<String>,
    round: Round,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The local address of the connection; `None`: any (`-` in the line).
    pub source: Option<IpAddr>,
    pub request: Arc<Request>,
}

/// A request with the expectations of its response.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Either absolute, with `http://` or `https://`, or a path relative to the URL of the command.
    pub uri: Uri,
    /// Whether to use TLS. Agrees with the scheme of an absolute URI.
    pub tls: bool,
    /// `GET`, unless the line contains another.
    pub method: Method,
    /// Header fields, in the line's order. None of them frames the message or controls the connection.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The request's body. May be empty.
    pub body: Bytes,
    /// The required status of the response; `None`: any.
    pub status: Option<StatusCode>,
    /// The required SHA-256 of the response's body; `None`: any.
    pub sha256: Option<[u8; 32]>,
    /// The class that counts the request: an index into [`AccessList::classes`].
    pub class: usize,
}

impl Request {
    /// The request of a line, with the content of its body file and the index of its class.
    fn of(ask: Ask, body: Bytes, class: usize) -> Self {
        let Ask { uri, tls, method, headers, status, sha256, .. } = ask;
        Self { uri, tls, method, headers, body, status, sha256, class }
    }
}

impl AccessList {
    /// Reads a list from a file. `body=FILE` is relative to the list's directory.
    pub fn read(path: &Path) -> Result<Self, ListError> {
        let name = path.display().to_string();
        let failed = |error| ListError::Read { file: name.clone(), error };
        let bytes = read_file(path, LIST_BYTES_MAX).map_err(failed)?;
        let text = str::from_utf8(&bytes).map_err(|error| ListError::not_utf8(&name, &bytes, error.valid_up_to()))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::parse(&name, text, |body| read_file(&directory.join(body), BODY_BYTES_MAX).map(Bytes::from))
    }

    /// Parses a list. `name` names it in errors. `body` returns the content of a file that a line names, and is called
    /// once for each file.
    pub fn parse(name: &str, text: &str, body: impl FnMut(&str) -> io::Result<Bytes>) -> Result<Self, ListError> {
        let mut builder = Builder::new(body);
        for (at, line) in text.lines().enumerate() {
            builder.line(line).map_err(|fault| ListError::at(name, at as u64 + 1, fault))?;
        }
        let file = name.to_owned();
        builder.finish().map_err(|error| match error {
            RoundError::Empty => ListError::Empty { file },
            RoundError::TooLong { .. } => ListError::Weights { file, error },
        })
    }

    /// A list of one request, from any source address. Its class is named after its URI.
    pub fn of_one(request: Request) -> Self {
        let classes = vec![class::name_of(&request.uri)];
        let entries = vec![Entry { source: None, request: Arc::new(Request { class: 0, ..request }) }];
        Self { entries, classes, round: Round::of_one() }
    }

    /// The entry of turn `turn`, from 0. After the last entry, the first follows.
    pub fn nth(&self, turn: u64) -> &Entry {
        &self.entries[self.round.nth(turn)]
    }

    /// The number of turns after which each entry has had as many as its weight, divided by the common divisor of all
    /// weights.
    pub fn turns(&self) -> u64 {
        self.round.turns()
    }

    /// The order of the entries.
    pub fn round(&self) -> &Round {
        &self.round
    }

    /// The lines, in their order; at least one.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The names of the classes, at most [`CLASSES_MAX`].
    pub fn classes(&self) -> &[String] {
        &self.classes
    }
}

/// A list while its lines are parsed.
struct Builder<'a, F> {
    /// Returns the content of a file.
    body: F,
    bodies: HashMap<String, Bytes>,
    bodies_bytes: usize,
    /// Indices of requests by the text of their lines, so that a repeated text is parsed once.
    known: HashMap<&'a str, usize>,
    requests: Vec<Request>,
    weights_of_requests: Vec<u32>,
    classes: Classes,
    /// Source address, and index of the request.
    lines: Vec<(Option<IpAddr>, u32)>,
}

impl<'a, F: FnMut(&str) -> io::Result<Bytes>> Builder<'a, F> {
    fn new(body: F) -> Self {
        Self {
            body,
            bodies: HashMap::new(),
            bodies_bytes: 0,
            known: HashMap::new(),
            requests: Vec::new(),
            weights_of_requests: Vec::new(),
            classes: Classes::default(),
            lines: Vec::new(),
        }
    }

    fn line(&mut self, line: &'a str) -> Result<(), Fault> {
        let Some((source, ask)) = line::split(line)? else { return Ok(()) };
        let request = match self.known.get(ask) {
            Some(request) => *request,
            None => self.request(ask)?,
        };
        self.classes.count(self.requests[request].class, self.weights_of_requests[request]);
        self.lines.push((source, request as u32));
        Ok(())
    }

    fn request(&mut self, text: &'a str) -> Result<usize, Fault> {
        let ask: Ask = text.parse()?;
        let class = match &ask.class {
            Some(name) => self.classes.named(name),
            None => self.classes.unnamed(&class::name_of(&ask.uri)),
        };
        let body = ask.body.as_deref().map_or(Ok(Bytes::new()), |file| self.body(file))?;
        self.weights_of_requests.push(ask.weight);
        self.requests.push(Request::of(ask, body, class));
        self.known.insert(text, self.requests.len() - 1);
        Ok(self.requests.len() - 1)
    }

    fn body(&mut self, file: &str) -> Result<Bytes, Fault> {
        if let Some(body) = self.bodies.get(file) {
            return Ok(body.clone());
        }
        let failed = |error| Fault::Body { body: file.to_owned(), error };
        let body = (self.body)(file).map_err(failed)?;
        self.bodies_bytes += body.len();
        if self.bodies_bytes > BODIES_BYTES_MAX {
            return Err(failed(io::Error::other(format!("all bodies together are over {BODIES_BYTES_MAX} bytes"))));
        }
        self.bodies.insert(file.to_owned(), body.clone());
        Ok(body)
    }

    fn finish(mut self) -> Result<AccessList, RoundError> {
        let weights: Vec<_> = self.lines.iter().map(|(_, at)| self.weights_of_requests[*at as usize]).collect();
        let round = Round::new(&weights)?;
        let (classes, indices) = self.classes.finish();
        for request in &mut self.requests {
            request.class = indices[request.class];
        }
        let requests: Vec<_> = self.requests.into_iter().map(Arc::new).collect();
        let entry = |(source, at): (_, u32)| Entry { source, request: Arc::clone(&requests[at as usize]) };
        Ok(AccessList { entries: self.lines.into_iter().map(entry).collect(), classes, round })
    }
}

/// A list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The file cannot be read, or is too large.
    #[error("cannot read {file}: {error}")]
    Read { file: String, error: io::Error },
    /// A line is invalid.
    #[error("{file}:{line}: {error}")]
    Line {
        file: String,
        /// Line number, from 1.
        line: u64,
        error: LineError,
    },
    /// The body file that a line names cannot be read.
    #[error("{file}:{line}: cannot read the body {body}: {error}")]
    Body {
        file: String,
        /// Line number, from 1.
        line: u64,
        /// The body file, as written in the line.
        body: String,
        error: io::Error,
    },
    /// All lines are empty or comments.
    #[error("{file} contains no requests")]
    Empty { file: String },
    /// The weights are too large.
    #[error("{file}: {error}")]
    Weights { file: String, error: RoundError },
}

impl ListError {
    fn at(file: &str, line: u64, fault: Fault) -> Self {
        let file = file.to_owned();
        match fault {
            Fault::Line(error) => Self::Line { file, line, error },
            Fault::Body { body, error } => Self::Body { file, line, body, error },
        }
    }

    fn not_utf8(file: &str, bytes: &[u8], valid_up_to: usize) -> Self {
        let line = bytes[..valid_up_to].split(|byte| *byte == b'\n').count() as u64;
        Self::Line { file: file.to_owned(), line, error: LineError::NotUtf8 }
    }
}

/// A problem of a line, without the line's number.
enum Fault {
    Line(LineError),
    Body { body: String, error: io::Error },
}

impl From<LineError> for Fault {
    fn from(error: LineError) -> Self {
        Self::Line(error)
    }
}

/// Reads a whole file. Fails if it is larger than `bytes_max`.
fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is over {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// In bytes: about 30 million lines of the paper's form.
const LIST_BYTES_MAX: u64 = 1 << 30;
const BODY_BYTES_MAX: u64 = 64 << 20;
const BODIES_BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests;
