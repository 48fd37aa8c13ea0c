//! One user's run of a flow.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use url::Url;

use super::cookies::Jar;
use super::definition::{Body, Flow, FlowStep, Take};
use super::names::USER_PLACE;
use super::take::{Answer, Missing, Reading};

/// One run of a flow. To drive it, repeat until there are no more turns or a call fails:
///
/// ```text
///   turn() -> Turn        wait for its think time, then
///   request(&turn)        send this request, and
///   answered(turn, ..)    enter the response
/// ```
#[derive(Debug)]
pub struct Walk {
    flow: Arc<Flow>,
    number: u64,
    random: Xoshiro256PlusPlus,
    /// By index.
    values: Vec<String>,
    cookies: Option<Jar>,
    /// The next step, and how many repetitions remain; `None`: not decided yet.
    step: usize,
    left: Option<u32>,
}

/// A step that is due.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its index among the steps of the flow.
    pub step: usize,
    /// The think time before the request.
    pub think: Duration,
}

#[derive(Clone, Debug)]
pub struct Outgoing {
    pub method: Method,
    /// On the site of the base URL.
    pub url: Url,
    /// All fields except those that the connection adds (`Host`, `Content-Length`).
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A request cannot be made with the values that the server gave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("this is not a URI")]
    Uri,
    /// A URI of another site.
    #[error("this leads to another site")]
    OtherSite,
    /// The text of a header field contains control characters.
    #[error("this does not fit into a header field")]
    Header,
}

/// A flow cannot continue after a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// A status that the step does not expect.
    #[error("status {0} is not expected")]
    Status(u16),
    /// A value is missing.
    #[error("no value for \"{name}\": {missing}")]
    Missing {
        /// The value's name.
        name: String,
        missing: Missing,
    },
}

impl Walk {
    /// Begins at the first step. `number` identifies the run. A run with the same `number` and `seed` takes the same
    /// turns.
    pub fn new(flow: Arc<Flow>, number: u64, seed: u64) -> Self {
        let mut values = flow.values.clone();
        values[USER_PLACE] = number.to_string();
        let cookies = flow.cookies.then(Jar::default);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ number.rotate_left(32));
        Self { flow, number, random, values, cookies, step: 0, left: None }
    }

    /// The next turn; `None` at the end of the flow.
    pub fn turn(&mut self) -> Option<Turn> {
        loop {
            let step = self.flow.steps.get(self.step)?;
            let left = match self.left {
                Some(left) => left,
                None if self.random.random_bool(step.probability) => step.repeat,
                None => 0,
            };
            if left == 0 {
                (self.step, self.left) = (self.step + 1, None);
                continue;
            }
            self.left = Some(left - 1);
            let think = step.think.as_ref().map_or(Duration::ZERO, |think| think.draw(self.number, &mut self.random));
            return Some(Turn { step: self.step, think });
        }
    }

    /// The request of a turn.
    pub fn request(&self, turn: &Turn) -> Result<Outgoing, Unfit> {
        let step = &self.flow.steps[turn.step];
        let url = resolve(&self.flow.base, &step.uri.fill(&self.values))?;
        Ok(Outgoing { method: step.method.clone(), headers: self.headers(step, &url)?, url, body: self.body(step) })
    }

    /// Takes the values that later steps need from the response.
    pub fn answered(&mut self, turn: &Turn, url: &Url, answer: Answer<'_>) -> Result<(), Failed> {
        let step = &self.flow.steps[turn.step];
        if let Some(jar) = &mut self.cookies {
            jar.keep(answer.headers, url);
        }
        if !step.expects(answer.status) {
            return Err(Failed::Status(answer.status));
        }
        let reading = Reading::new(answer);
        for Take { name, place, source } in &step.takes {
            let missing = |missing| Failed::Missing { name: name.clone(), missing };
            self.values[*place] = reading.take(source).map_err(missing)?;
        }
        Ok(())
    }

    fn headers(&self, step: &FlowStep, url: &Url) -> Result<HeaderMap, Unfit> {
        let mut headers = HeaderMap::with_capacity(step.headers.len() + 1);
        for (name, value) in &step.headers {
            let value = HeaderValue::from_str(&value.fill(&self.values)).map_err(|_| Unfit::Header)?;
            headers.append(name.clone(), value);
        }
        if let Some(field) = self.cookies.as_ref().and_then(|jar| jar.field(url)) {
            headers.append(header::COOKIE, field);
        }
        Ok(headers)
    }

    fn body(&self, step: &FlowStep) -> Bytes {
        match &step.body {
            Body::Nothing => Bytes::new(),
            Body::Text(text) => text.fill(&self.values).into(),
            Body::File(file) => file.content.clone(),
        }
    }
}

/// Resolves `uri` against `base`.
pub(super) fn resolve(base: &Url, uri: &str) -> Result<Url, Unfit> {
    // The URL parser drops line breaks and tabs (WHATWG), so they would pass undetected.
    if uri.chars().any(char::is_control) {
        return Err(Unfit::Uri);
    }
    let mut url = base.join(uri).map_err(|_| Unfit::Uri)?;
    if url.origin() != base.origin() {
        return Err(Unfit::OtherSite);
    }
    url.set_fragment(None);
    Ok(url)
}
