//! Responses: a file, parts of a file, or a refusal.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION};
use http::response::Builder;
use http::{HeaderValue, Response, StatusCode};
use prometheus_client::metrics::counter::Counter;
use rustix::io::Errno;
use watari_body::{Body, empty, full};
use watari_conditional::{Multipart, content_range, unsatisfied_range};

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

/// A file, and the fields of its response.
pub(crate) struct Content {
    pub(crate) source: Source,
    pub(crate) description: Arc<Description>,
}

/// Where the bytes of a file come from.
pub(crate) enum Source {
    File(File),
    /// All bytes of the file.
    Memory(Bytes),
}

/// The fields of responses with a version of a file.
#[derive(Debug)]
pub(crate) struct Description {
    /// In bytes.
    pub(crate) length: u64,
    media_type: HeaderValue,
    pub(crate) validators: Validators,
    etag: HeaderValue,
    last_modified: HeaderValue,
}

impl Description {
    pub(crate) fn new(length: u64, media_type: &str, validators: Validators) -> Self {
        // All of them are constants, numbers and dates.
        let value = |text: &str| HeaderValue::from_str(text).expect("the fields of our own responses are valid");
        let (etag, last_modified) = (value(&validators.etag()), value(&validators.last_modified()));
        Self { length, media_type: value(media_type), validators, etag, last_modified }
    }
}

impl Content {
    /// 200.
    pub(crate) fn whole(self, cut: Counter) -> Response<Body> {
        let Description { length, ref media_type, .. } = *self.description;
        let response = self.start(StatusCode::OK).header(CONTENT_TYPE, media_type).header(CONTENT_LENGTH, length);
        finish(response, self.source.body([Segment::File(0..length)], cut))
    }

    /// 206: one part directly, several as `multipart/byteranges` (RFC 9110, section 15.3.7).
    pub(crate) fn parts(self, parts: &[Range<u64>], cut: Counter) -> Response<Body> {
        let response = self.start(StatusCode::PARTIAL_CONTENT);
        let Description { length, ref media_type, .. } = *self.description;
        let (response, segments) = if let [part] = parts {
            let response = response.header(CONTENT_TYPE, media_type).header(CONTENT_RANGE, content_range(part, length));
            (response, vec![Segment::File(part.clone())])
        } else {
            let parts = Multipart::new(parts, media_type.to_str().ok(), length);
            (response.header(CONTENT_TYPE, &parts.media_type), segments(parts))
        };
        let length: u64 = segments.iter().map(Segment::len).sum();
        finish(response.header(CONTENT_LENGTH, length), self.source.body(segments, cut))
    }

    /// 416.
    pub(crate) fn unsatisfiable(&self) -> Response<Body> {
        let response = self
            .start(StatusCode::RANGE_NOT_SATISFIABLE)
            .header(CONTENT_RANGE, unsatisfied_range(self.description.length))
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
            .header(ETAG, &self.description.etag)
            .header(LAST_MODIFIED, &self.description.last_modified)
            .header(ACCEPT_RANGES, const { HeaderValue::from_static("bytes") })
    }
}

impl Source {
    /// The bytes of `segments`, in order.
    fn body(self, segments: impl IntoIterator<Item = Segment>, cut: Counter) -> Body {
        let bytes = match self {
            Self::File(file) => return FileBody::new(file, segments, cut).boxed(),
            Self::Memory(bytes) => bytes,
        };
        let piece = |segment| match segment {
            Segment::Text(text) => text,
            Segment::File(range) => bytes.slice(range.start as usize..range.end as usize),
        };
        let pieces: Vec<Bytes> = segments.into_iter().map(piece).collect();
        if let [only] = &pieces[..] { full(only.clone()) } else { full(pieces.concat()) }
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

fn segments(parts: Multipart) -> Vec<Segment> {
    let mut segments = Vec::with_capacity(2 * parts.parts.len() + 1);
    for (text, part) in parts.parts {
        segments.extend([Segment::Text(text.into()), Segment::File(part)]);
    }
    segments.push(Segment::Text(parts.end.into()));
    segments
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
}
