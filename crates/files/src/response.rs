//! Responses: a file, parts of a file, or a refusal.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Range;

use http::header::{ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION};
use http::response::Builder;
use http::{Response, StatusCode};
use prometheus_client::metrics::counter::Counter;
use rustix::io::Errno;
use watari_body::{Body, empty, full};

use crate::body::{FileBody, Segment};
use crate::conditions::Validators;
use crate::path::PathError;

/// The reason that no file is sent. The client is at fault, unless stated otherwise.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("only GET and HEAD are allowed")]
    Method,
    #[error("malformed path")]
    Malformed,
    #[error("no such file")]
    NotFound,
    /// The operator is at fault: the file's permissions do not let the agent read it.
    #[error("no permission to read the file")]
    Forbidden,
    /// The agent is at fault: it has no file descriptors or memory, or the path was renamed during each attempt.
    #[error("out of resources")]
    Busy(#[source] io::Error),
    /// The file system is at fault.
    #[error("the file could not be opened")]
    Broken(#[source] io::Error),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The response with the status, and the reason as text.
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = Response::builder().status(self.status());
        if matches!(self, Self::Method) {
            response = response.header(ALLOW, "GET, HEAD");
        }
        let text = format!("{self}\n");
        finish(
            response.header(CONTENT_TYPE, "text/plain; charset=utf-8").header(CONTENT_LENGTH, text.len()),
            full(text),
        )
    }
}

impl From<PathError> for Refusal {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Malformed => Self::Malformed,
            PathError::NoSuchName => Self::NotFound,
        }
    }
}

impl From<io::Error> for Refusal {
    /// For clients, a path that leads outside the root (`EXDEV`) does not exist.
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO) => {
                Self::NotFound
            }
            Some(Errno::ACCESS | Errno::PERM) => Self::Forbidden,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => Self::Busy(error),
            _ => Self::Broken(error),
        }
    }
}

/// An open file, and the data for the fields of its response.
pub(crate) struct Content {
    pub(crate) file: File,
    /// In bytes.
    pub(crate) length: u64,
    pub(crate) media_type: String,
    pub(crate) validators: Validators,
}

impl Content {
    /// 200.
    pub(crate) fn whole(self, cut: Counter) -> Response<Body> {
        let response =
            self.start(StatusCode::OK).header(CONTENT_TYPE, self.media_type).header(CONTENT_LENGTH, self.length);
        finish(response, FileBody::new(self.file, [Segment::File(0..self.length)], cut).boxed())
    }

    /// 206: one part directly, several as `multipart/byteranges` (RFC 9110, section 15.3.7).
    pub(crate) fn parts(self, parts: &[Range<u64>], cut: Counter) -> Response<Body> {
        let response = self.start(StatusCode::PARTIAL_CONTENT);
        let (response, segments) = if let [part] = parts {
            let response =
                response.header(CONTENT_TYPE, &self.media_type).header(CONTENT_RANGE, content_range(part, self.length));
            (response, vec![Segment::File(part.clone())])
        } else {
            let boundary = boundary();
            let media_type = format!("multipart/byteranges; boundary={boundary}");
            (response.header(CONTENT_TYPE, media_type), self.multipart(parts, &boundary))
        };
        let length: u64 = segments.iter().map(Segment::len).sum();
        finish(response.header(CONTENT_LENGTH, length), FileBody::new(self.file, segments, cut).boxed())
    }

    /// 416.
    pub(crate) fn unsatisfiable(&self) -> Response<Body> {
        let response = self
            .start(StatusCode::RANGE_NOT_SATISFIABLE)
            .header(CONTENT_RANGE, format!("bytes */{}", self.length))
            .header(CONTENT_LENGTH, 0);
        finish(response, empty())
    }

    /// 304.
    pub(crate) fn not_modified(&self) -> Response<Body> {
        finish(self.start(StatusCode::NOT_MODIFIED), empty())
    }

    /// 412.
    pub(crate) fn precondition_failed(&self) -> Response<Body> {
        finish(self.start(StatusCode::PRECONDITION_FAILED).header(CONTENT_LENGTH, 0), empty())
    }

    fn start(&self, status: StatusCode) -> Builder {
        Response::builder()
            .status(status)
            .header(ETAG, self.validators.etag())
            .header(LAST_MODIFIED, self.validators.last_modified())
            .header(ACCEPT_RANGES, "bytes")
    }

    fn multipart(&self, parts: &[Range<u64>], boundary: &str) -> Vec<Segment> {
        let mut segments = Vec::with_capacity(2 * parts.len() + 1);
        let mut line_end = "";
        for part in parts {
            let head = format!(
                "{line_end}--{boundary}\r\nContent-Type: {}\r\nContent-Range: {}\r\n\r\n",
                self.media_type,
                content_range(part, self.length)
            );
            segments.extend([Segment::Text(head.into()), Segment::File(part.clone())]);
            line_end = "\r\n";
        }
        segments.push(Segment::Text(format!("\r\n--{boundary}--\r\n").into()));
        segments
    }
}

/// 301 to the path `location`, with the query of the request.
pub(crate) fn redirect(mut location: String, query: Option<&str>) -> Response<Body> {
    if let Some(query) = query {
        location.push('?');
        location.push_str(query);
    }
    let response = Response::builder().status(StatusCode::MOVED_PERMANENTLY);
    finish(response.header(LOCATION, location).header(CONTENT_LENGTH, 0), empty())
}

/// The answer to HEAD is the answer to GET without its body (RFC 9110, section 9.3.2).
pub(crate) fn without_body(response: Response<Body>) -> Response<Body> {
    response.map(|_| empty())
}

fn content_range(part: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", part.start, part.end - 1)
}

/// A boundary that no part can be made to contain: 128 bits from the standard library's random hash keys.
fn boundary() -> String {
    let draw = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", draw(), draw())
}

/// The build cannot fail: all fields are numbers, dates, constants, and checked or encoded paths.
fn finish(response: Builder, body: Body) -> Response<Body> {
    response.body(body).expect("the fields of our own responses are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_become_statuses() {
        for (errno, status) in [
            (Errno::NOENT, 404),
            (Errno::NOTDIR, 404),
            (Errno::XDEV, 404),
            (Errno::LOOP, 404),
            (Errno::NAMETOOLONG, 404),
            (Errno::NXIO, 404),
            (Errno::ACCESS, 403),
            (Errno::PERM, 403),
            (Errno::MFILE, 503),
            (Errno::NFILE, 503),
            (Errno::AGAIN, 503),
            (Errno::IO, 500),
        ] {
            let refusal = Refusal::from(io::Error::from(errno));
            assert_eq!(refusal.status(), status, "{errno}");
        }
    }

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary(), boundary());
        assert_eq!(boundary().len(), 32);
    }
}
