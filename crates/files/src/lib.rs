//! Serves a directory over HTTP.
//!
//! [`Files::respond`] answers one request, from the path to the body, as RFC 9110 requires: preconditions, ranges,
//! content types, and an index for directories. It does not list directories. It does not serve hidden files, except in
//! `/.well-known`. It does not follow a symbolic link out of its root.
//!
//! This crate has no connections: the agent adds HTTP/1.1 and HTTP/2.
//!
//! Small files that have not changed for a while come from memory (`small`).
//!
//! To replace a file, rename another over it. If a file is rewritten in place while it is sent, the response has old
//! and new bytes. If it becomes shorter, the body ends with an error.

mod body;
mod buffer;
mod conditions;
mod metrics;
mod path;
mod response;
mod root;
mod small;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::request::Parts;
use http::{Method, Response};
use watari_body::Body;
use watari_conditional::{Selection, Verdict, evaluate, selection};

pub use crate::metrics::Metrics;

use crate::conditions::Validators;
use crate::path::FilePath;
use crate::response::{Content, Description, Refusal, Source};
use crate::root::{OpenFile, Opened, Root};
use crate::small::SmallFiles;

/// The file that is served for a directory.
const INDEX: &str = "index.html";

#[derive(Debug)]
pub struct Files {
    root: Root,
    small: SmallFiles,
    metrics: Metrics,
}

impl Files {
    /// Opens the directory `root`. The same directory stays open when it is renamed or replaced.
    ///
    /// Fails if it cannot be opened or is no directory, or if the kernel has no `openat2` (Linux 5.6).
    pub fn open(root: &Path, metrics: Metrics) -> io::Result<Self> {
        Ok(Self { root: Root::open(root)?, small: SmallFiles::new(), metrics })
    }

    /// Answers a request with this head. Does not need its body.
    pub async fn respond(&self, head: &Parts) -> Response<Body> {
        let response = match self.answer(head).await {
            Ok(response) => response,
            Err(refusal) => {
                log(&refusal, head.uri.path());
                refusal.response()
            }
        };
        self.metrics.count(response.status());
        if head.method == Method::HEAD { response::without_body(response) } else { response }
    }

    async fn answer(&self, head: &Parts) -> Result<Response<Body>, Refusal> {
        if head.method != Method::GET && head.method != Method::HEAD {
            return Err(Refusal::Method);
        }
        if let Some(content) = self.small.find(head.uri.path(), &self.root, Instant::now()) {
            return Ok(self.serve(head, content));
        }
        let path = FilePath::parse(head.uri.path())?;
        let relative = path.relative(INDEX);
        match self.root.open_below(relative.clone()).await? {
            Opened::File(file) => {
                let (identity, now) = (file.identity, (Instant::now(), SystemTime::now()));
                let content = content(file, &relative, now.1);
                self.small.add(head.uri.path(), relative, identity, &content, now);
                Ok(self.serve(head, content))
            }
            Opened::Directory if !path.is_directory() => {
                Ok(response::redirect(path.directory_location(), head.uri.query()))
            }
            Opened::Directory | Opened::Special => Err(Refusal::NotFound),
        }
    }

    fn serve(&self, head: &Parts, content: Content) -> Response<Body> {
        let validators = content.description.validators.compared();
        match evaluate(&head.headers, &validators) {
            Verdict::Failed => return content.precondition_failed(),
            Verdict::NotModified => return content.not_modified(),
            Verdict::Perform => {}
        }
        let cut = self.metrics.bodies_cut.clone();
        match selection(&head.method, &head.headers, &validators, content.description.length) {
            Selection::Whole => content.whole(cut),
            Selection::Parts(parts) => content.parts(&parts, cut),
            Selection::Unsatisfiable => content.unsatisfiable(),
        }
    }
}

/// The content of a file, in memory if it is short and in the kernel's cache, so that it can be stored. `path` ends with
/// the name of the file.
fn content(opened: OpenFile, path: &[u8], now: SystemTime) -> Content {
    let OpenFile { file, length, modified, .. } = opened;
    let validators = Validators::new(length, modified, now);
    let description = Arc::new(Description::new(length, &media_type(path), validators));
    let read = if length <= small::LEN_MAX { body::read_cached(&file, length as usize) } else { None };
    Content { source: read.map_or(Source::File(file), Source::Memory), description }
}

/// The media type of a file, by the extension of its name. The default is `application/octet-stream`.
pub fn media_type(path: &[u8]) -> String {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let extension = name.iter().rposition(|&byte| byte == b'.').map(|dot| &name[dot + 1..]);
    let extension = extension.and_then(|extension| std::str::from_utf8(extension).ok()).unwrap_or_default();
    let guess = mime_guess::from_ext(extension).first_raw().unwrap_or("application/octet-stream");
    if guess.starts_with("text/") { format!("{guess}; charset=utf-8") } else { guess.to_owned() }
}

fn log(refusal: &Refusal, path: &str) {
    match refusal {
        Refusal::Busy(error) | Refusal::Broken(error) => {
            tracing::warn!(path, %error, "{refusal}");
        }
        Refusal::Forbidden => tracing::info!(path, "{refusal}"),
        Refusal::Method | Refusal::Malformed | Refusal::NotFound => {
            tracing::debug!(path, "{refusal}");
        }
    }
}
