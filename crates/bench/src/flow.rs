//! Interactive flows: requests that depend on the answers before them (the open point of anma-enma, section 5).
//!
//! ```toml
//! cookies = true                       # kept by each user; the default
//!
//! [values]                             # values from the start on; ${user}, the number of the run, is one of itself
//! language = "en"
//!
//! [[step]]
//! name = "form"                        # a class of URIs in all reports
//! uri = "/order?lang=${language}"      # relative to the command's URL
//! take.token = { regex = 'name="csrf" value="([^"]+)"' }
//!
//! [[step]]
//! name = "confirm"
//! think = { shares = ["5s", "10s", "30s", "60s"] }
//! method = "POST"
//! uri = "/order"
//! headers = { content-type = "application/x-www-form-urlencoded" }
//! body = "token=${token|url}"
//! expect = 303
//! take.place = { header = "location" }
//!
//! [[step]]
//! name = "done"
//! uri = "${place}"
//! ```
//!
//! * `method`: `GET`, or `POST` where there is a body. `headers`: fields of the request.
//! * `body` is text with places for values, `body_file` a file that is sent as it is, relative to the flow's file.
//! * `expect`: a status, or a list of them; without it every status below 400 is right. Redirects are not followed: a step may
//!   take `location` and the next ask for it, as above.
//! * `take.NAME`: a value that later steps use as `${NAME}`: from a `header` or `cookie` of the answer, by a `regex` (its first group) or
//!   by a `json` pointer (RFC 6901) from the first MiB of its body.
//! * `think`: the time before the step, counted from the end of the answer before it: fixed, `uniform` between two, from a list in
//!   exactly equal `shares` of the users, or `exponential` with a mean.
//! * `repeat`: how often the step is done, thinking before each time. `probability`: that it is done at all.
//!
//! Places: `${name}` as it is, `${name|url}` percent-encoded, `${name|json}` for the inside of a JSON string, `$${` for itself. Names are
//! looked up when the file is read. Values come from a server that may be hostile: one that does not fit into a URI or a field, or that
//! leads to another site, ends the run of the flow ([`EndingKind::Local`](crate::ending::EndingKind::Local)), as does a value that is
//! not in the answer.
//!
//! [`Flow`] is the file, [`Walk`] one user on the way through it.

mod check;
mod cookies;
mod error;
mod names;
mod raw;
mod take;
mod template;
mod think;
mod walk;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Method};
use url::Url;

use self::check::Check;
use self::take::Source;
use self::template::Template;
use self::think::Think;

pub use self::error::{FlowError, Problem};
pub use self::names::NameError;
pub use self::take::{Answer, Missing, SourceError};
pub use self::template::TemplateError;
pub use self::walk::{Failed, Outgoing, Turn, Unfit, Walk};
pub(crate) use self::wire::{BadFlow, WireFlow};

/// How much of a body is looked at for values, in bytes.
pub const BODY_LOOKED_AT: usize = 1 << 20;

/// What users of a site do, one step after the other.
#[derive(Debug)]
pub struct Flow {
    /// The file it was written in, and what stands there.
    file: PathBuf,
    text: String,
    /// What URIs are relative to; no user leaves its site.
    base: Url,
    /// Whether each user keeps cookies.
    cookies: bool,
    /// The values at the start, by their places; those yet to be taken are empty.
    values: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: String,
    method: Method,
    uri: Template,
    headers: Vec<(HeaderName, Template)>,
    body: Body,
    /// Empty: every status below 400.
    expect: Vec<u16>,
    takes: Vec<Take>,
    think: Option<Think>,
    repeat: u32,
    probability: f64,
}

/// A value out of the answer.
#[derive(Debug)]
struct Take {
    name: String,
    /// Where the value goes.
    place: usize,
    source: Source,
}

#[derive(Debug)]
enum Body {
    Nothing,
    Text(Template),
    File(BodyFile),
}

#[derive(Clone, Debug)]
struct BodyFile {
    /// As the flow names it.
    path: PathBuf,
    content: Bytes,
}

impl Flow {
    /// Reads `file`, and the files with bodies that it names. URIs in it are relative to `base`; `seed` decides who gets which of the times
    /// that are shared out.
    pub fn read(file: &Path, base: &Url, seed: u64) -> Result<Self, FlowError> {
        let unreadable = |cause| FlowError::Unreadable { file: file.to_owned(), cause };
        let length = fs::metadata(file).map_err(unreadable)?.len();
        if length > FILE_BYTES_MAX {
            return Err(FlowError::TooLong { file: file.to_owned() });
        }
        Self::parse(file, &fs::read_to_string(file).map_err(unreadable)?, base, seed)
    }

    /// Checks `text` as if `file` held it.
    pub fn parse(file: &Path, text: &str, base: &Url, seed: u64) -> Result<Self, FlowError> {
        Self::check(&Check { file, text, base, seed, bodies: &|path| check::read_body(file, path) })
    }

    fn check(check: &Check<'_>) -> Result<Self, FlowError> {
        let file = check.file.to_owned();
        let checked = raw::parse(check.text).map_err(|(line, sentence)| (line, Problem::Toml(sentence)));
        checked.and_then(|raw| check.flow(raw)).map_err(|(line, problem)| FlowError::Wrong { file, line, problem })
    }

    /// The names of the steps, in order: the classes of URIs that requests are counted in.
    pub fn names(&self) -> Arc<[String]> {
        self.steps.iter().map(|step| step.name.clone()).collect()
    }

    /// The name of a step.
    pub fn name(&self, step: usize) -> &str {
        &self.steps[step].name
    }

    /// How much of the body of the step's answers is looked at, in bytes.
    pub fn body_looked_at(&self, step: usize) -> usize {
        if self.steps[step].takes.iter().any(|take| take.source.is_in_body()) { BODY_LOOKED_AT } else { 0 }
    }
}

impl Step {
    fn expects(&self, status: u16) -> bool {
        if self.expect.is_empty() { status < 400 } else { self.expect.contains(&status) }
    }
}

/// What people write by hand is far shorter.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
