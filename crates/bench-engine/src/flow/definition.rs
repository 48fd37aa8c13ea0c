//! A flow that has been read and checked.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Method};
use url::Url;

use super::take::Source;
use super::template::Template;
use super::think::Think;

/// How much of a body is searched for values, in bytes.
pub const BODY_LOOKED_AT: usize = 1 << 20;

/// The steps that users of a site perform, in order.
#[derive(Debug)]
pub struct Flow {
    /// The flow's file and its text.
    pub(super) file: PathBuf,
    pub(super) text: String,
    /// The base of relative URIs. Users do not leave its site.
    pub(super) base: Url,
    /// Whether each user keeps cookies.
    pub(super) cookies: bool,
    /// The initial values, by index. Values that steps take later are empty.
    pub(super) values: Vec<String>,
    pub(super) steps: Vec<FlowStep>,
}

#[derive(Debug)]
pub(super) struct FlowStep {
    pub(super) name: String,
    pub(super) method: Method,
    pub(super) uri: Template,
    pub(super) headers: Vec<(HeaderName, Template)>,
    pub(super) body: Body,
    /// Accepted statuses. Empty: every status below 400.
    pub(super) expect: Vec<u16>,
    pub(super) takes: Vec<Take>,
    pub(super) think: Option<Think>,
    pub(super) repeat: u32,
    pub(super) probability: f64,
}

/// A value to take from the response.
#[derive(Debug)]
pub(super) struct Take {
    pub(super) name: String,
    /// The index of the value.
    pub(super) place: usize,
    pub(super) source: Source,
}

#[derive(Debug)]
pub(super) enum Body {
    Nothing,
    Text(Template),
    File(BodyFile),
}

#[derive(Clone, Debug)]
pub(super) struct BodyFile {
    /// The path as the flow names it.
    pub(super) path: PathBuf,
    pub(super) content: Bytes,
}

impl Flow {
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
    pub(super) fn expects(&self, status: u16) -> bool {
        if self.expect.is_empty() { status < 400 } else { self.expect.contains(&status) }
    }
}
