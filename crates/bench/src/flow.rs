//! Interactive flows: requests that depend on earlier responses (the open point of anma-enma, section 5).
//!
//! ```toml
//! cookies = true                       # kept by each user; the default
//!
//! [values]                             # initial values; ${user}, the number of the run, is built in
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
//! * `method`: `GET`, or `POST` if there is a body. `headers`: fields of the request.
//! * `body` is text with placeholders for values. `body_file` is a file that is sent as it is. Its path is relative to
//!   the flow's file.
//! * `expect`: a status, or a list of them. By default every status below 400 is right. Redirects are not followed: a
//!   step may take `location` and the next step request it, as above.
//! * `take.NAME`: a value that later steps use as `${NAME}`. Its source is a `header` or `cookie` of the response, or
//!   the first MiB of its body, by a `regex` (its first group) or a `json` pointer (RFC 6901).
//! * `think`: the time before the step, counted from the end of the response before it. It is fixed, `uniform` between
//!   two times, from a list in exactly equal `shares` of the users, or `exponential` with a mean.
//! * `repeat`: how often the step is done, with a think time before each. `probability`: the probability that the step
//!   is done at all.
//!
//! Placeholders: `${name}` as it is, `${name|url}` percent-encoded, `${name|json}` for the inside of a JSON string,
//! `$${` for a literal `${`. Names are resolved when the file is read. Values come from a server that may be hostile.
//! The run of a flow ends with [`EndingKind::Local`](crate::ending::EndingKind::Local) in three cases:
//!
//! * a value does not fit into a URI or a field;
//! * a value leads to another site;
//! * a value is missing in the response.
//!
//! [`Flow`] is the file, [`Walk`] one user's run of it.

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

/// How much of a body is searched for values, in bytes.
pub const BODY_LOOKED_AT: usize = 1 << 20;

/// The steps that users of a site perform, in order.
#[derive(Debug)]
pub struct Flow {
    /// The flow's file and its text.
    file: PathBuf,
    text: String,
    /// The base of relative URIs. Users do not leave its site.
    base: Url,
    /// Whether each user keeps cookies.
    cookies: bool,
    /// The initial values, by index. Values that steps take later are empty.
    values: Vec<String>,
    steps: Vec<FlowStep>,
}

#[derive(Debug)]
struct FlowStep {
    name: String,
    method: Method,
    uri: Template,
    headers: Vec<(HeaderName, Template)>,
    body: Body,
    /// Accepted statuses. Empty: every status below 400.
    expect: Vec<u16>,
    takes: Vec<Take>,
    think: Option<Think>,
    repeat: u32,
    probability: f64,
}

/// A value to take from the response.
#[derive(Debug)]
struct Take {
    name: String,
    /// The index of the value.
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
    /// The path as the flow names it.
    path: PathBuf,
    content: Bytes,
}

impl Flow {
    /// Reads `file`, and the body files that it names. URIs in it are relative to `base`. `seed` assigns the `shares`
    /// of think times to users.
    pub fn read(file: &Path, base: &Url, seed: u64) -> Result<Self, FlowError> {
        let unreadable = |cause| FlowError::Unreadable { file: file.to_owned(), cause };
        let length = fs::metadata(file).map_err(unreadable)?.len();
        if length > FILE_BYTES_MAX {
            return Err(FlowError::TooLong { file: file.to_owned() });
        }
        Self::parse(file, &fs::read_to_string(file).map_err(unreadable)?, base, seed)
    }

    /// Checks `text` as if `file` contained it.
    pub fn parse(file: &Path, text: &str, base: &Url, seed: u64) -> Result<Self, FlowError> {
        Self::check(&Check { file, text, base, seed, bodies: &|path| check::read_body(file, path) })
    }

    fn check(check: &Check<'_>) -> Result<Self, FlowError> {
        let file = check.file.to_owned();
        let checked = raw::parse(check.text).map_err(|(line, sentence)| (line, Problem::Toml(sentence)));
        checked.and_then(|raw| check.flow(raw)).map_err(|(line, problem)| FlowError::Wrong { file, line, problem })
    }

    /// The names of the steps, in order. Requests are counted by them, as classes of URIs.
    pub fn names(&self) -> Arc<[String]> {
        self.steps.iter().map(|step| step.name.clone()).collect()
    }

    pub fn name(&self, step: usize) -> &str {
        &self.steps[step].name
    }

    /// How much of the bodies of the step's responses is searched for values, in bytes.
    pub fn body_looked_at(&self, step: usize) -> usize {
        if self.steps[step].takes.iter().any(|take| take.source.is_in_body()) { BODY_LOOKED_AT } else { 0 }
    }
}

impl FlowStep {
    fn expects(&self, status: u16) -> bool {
        if self.expect.is_empty() { status < 400 } else { self.expect.contains(&status) }
    }
}

/// Far longer than flows that are written by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
