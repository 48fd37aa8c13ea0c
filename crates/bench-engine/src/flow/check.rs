//! Reads a flow, and checks it.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderName, Method, header};
use toml::Spanned;
use url::Url;

use super::definition::{Body, BodyFile, Flow, FlowStep, Take};
use super::error::{FlowError, Problem};
use super::names::Names;
use super::raw::{self, RawDraw, RawExpect, RawFlow, RawStep, RawTake, RawThink, line_of};
use super::take::Source;
use super::template::Template;
use super::think::Think;
use super::walk::resolve;
use crate::shares::Shares;

/// A line number and the problem there.
pub(super) type Wrong = (usize, Problem);

/// Checks one file.
pub(super) struct Check<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    pub(super) base: &'a Url,
    pub(super) seed: u64,
    /// Returns the content of a body file.
    pub(super) bodies: &'a dyn Fn(&Path) -> Result<Bytes, Problem>,
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
        Self::check(&Check { file, text, base, seed, bodies: &|path| read_body(file, path) })
    }

    pub(super) fn check(check: &Check<'_>) -> Result<Self, FlowError> {
        let file = check.file.to_owned();
        let checked = raw::parse(check.text).map_err(|(line, sentence)| (line, Problem::Toml(sentence)));
        checked.and_then(|raw| check.flow(raw)).map_err(|(line, problem)| FlowError::Wrong { file, line, problem })
    }
}

impl Check<'_> {
    pub(super) fn flow(&self, raw: RawFlow) -> Result<Flow, Wrong> {
        let mut names = Names::default();
        let mut values = vec![String::new()];
        for (name, value) in raw.values {
            self.at(&name, names.certain(name.get_ref()))?;
            values.push(value.into_inner());
        }
        if !(1..=STEPS_MAX).contains(&raw.step.get_ref().len()) {
            return self.wrong(&raw.step, Problem::Steps(STEPS_MAX));
        }
        let steps = raw.step.into_inner().into_iter().enumerate();
        let steps =
            steps.map(|(index, step)| self.step(index, step.into_inner(), &mut names)).collect::<Result<_, _>>()?;
        values.resize(names.len(), String::new());
        Ok(Flow {
            file: self.file.to_owned(),
            text: self.text.to_owned(),
            base: self.base.clone(),
            cookies: raw.cookies,
            values,
            steps,
        })
    }

    fn step(&self, index: usize, raw: RawStep, names: &mut Names) -> Result<FlowStep, Wrong> {
        let body = self.body(raw.body, raw.body_file, names)?;
        let probability = self.probability(raw.probability)?;
        Ok(FlowStep {
            name: self.name(raw.name)?,
            method: self.method(raw.method, &body)?,
            uri: self.uri(&raw.uri, names)?,
            headers: raw
                .headers
                .iter()
                .map(|(name, value)| self.header(name, value, names))
                .collect::<Result<_, _>>()?,
            body,
            expect: self.expect(raw.expect)?,
            // The values that this step takes are available only after it.
            takes: self.takes(&raw.take, probability < 1.0, names)?,
            think: raw.think.map(|think| self.think(&think, index)).transpose()?,
            repeat: self.repeat(raw.repeat)?,
            probability,
        })
    }

    fn name(&self, raw: Spanned<String>) -> Result<String, Wrong> {
        let length = raw.get_ref().chars().count();
        if !(1..=NAME_CHARS_MAX).contains(&length) || raw.get_ref().chars().any(char::is_control) {
            return self.wrong(&raw, Problem::StepName);
        }
        Ok(raw.into_inner())
    }

    fn method(&self, raw: Option<Spanned<String>>, body: &Body) -> Result<Method, Wrong> {
        match raw {
            None if matches!(body, Body::Nothing) => Ok(Method::GET),
            None => Ok(Method::POST),
            Some(raw) => self.at(&raw, raw.get_ref().parse().map_err(|_| Problem::Method(raw.get_ref().clone()))),
        }
    }

    /// A URI without placeholders must lead to the site. Others are checked when they are filled in.
    fn uri(&self, raw: &Spanned<String>, names: &Names) -> Result<Template, Wrong> {
        let template = self.template(raw, names)?;
        if let Some(uri) = template.constant() {
            self.at(raw, resolve(self.base, uri))?;
        }
        Ok(template)
    }

    fn header(
        &self,
        raw_name: &Spanned<String>,
        raw_value: &Spanned<String>,
        names: &Names,
    ) -> Result<(HeaderName, Template), Wrong> {
        let text = raw_name.get_ref();
        let name: HeaderName = self.at(raw_name, text.parse().map_err(|_| Problem::HeaderName(text.clone())))?;
        if OWNED.contains(&name) {
            return self.wrong(raw_name, Problem::HeaderOwned(text.clone()));
        }
        if raw_value.get_ref().chars().any(|c| c.is_control() && c != '\t') {
            return self.wrong(raw_value, Problem::HeaderValue);
        }
        Ok((name, self.template(raw_value, names)?))
    }

    fn body(
        &self,
        text: Option<Spanned<String>>,
        file: Option<Spanned<PathBuf>>,
        names: &Names,
    ) -> Result<Body, Wrong> {
        match (text, file) {
            (None, None) => Ok(Body::Nothing),
            (Some(text), None) => self.template(&text, names).map(Body::Text),
            (None, Some(file)) => {
                let content = self.at(&file, (self.bodies)(file.get_ref()))?;
                Ok(Body::File(BodyFile { path: file.into_inner(), content }))
            }
            (Some(_), Some(file)) => self.wrong(&file, Problem::TwoBodies),
        }
    }

    fn expect(&self, raw: Option<Spanned<RawExpect>>) -> Result<Vec<u16>, Wrong> {
        match raw {
            None => Ok(Vec::new()),
            Some(raw) if raw.get_ref().0.is_empty() => self.wrong(&raw, Problem::Status),
            Some(raw) if !raw.get_ref().0.iter().all(|status| (200..600).contains(status)) => {
                self.wrong(&raw, Problem::Status)
            }
            Some(raw) => Ok(raw.into_inner().0),
        }
    }

    fn takes(
        &self,
        raw: &BTreeMap<Spanned<String>, Spanned<RawTake>>,
        may_be_left_out: bool,
        names: &mut Names,
    ) -> Result<Vec<Take>, Wrong> {
        let mut takes = Vec::new();
        for (name, take) in raw {
            let text = name.get_ref();
            let place = if may_be_left_out { names.perhaps(text) } else { names.certain(text) };
            let (place, source) = (self.at(name, place)?, self.at(take, source(take.get_ref()))?);
            takes.push(Take { name: text.clone(), place, source });
        }
        Ok(takes)
    }

    /// The seed differs between steps, so that the slow users differ too.
    fn think(&self, raw: &Spanned<RawThink>, step: usize) -> Result<Think, Wrong> {
        self.at(raw, think(raw.get_ref(), self.seed.wrapping_add(step as u64)))
    }

    fn repeat(&self, raw: Option<Spanned<NonZeroU32>>) -> Result<u32, Wrong> {
        match raw {
            None => Ok(1),
            Some(raw) if raw.get_ref().get() <= REPEAT_MAX => Ok(raw.into_inner().get()),
            Some(raw) => self.wrong(&raw, Problem::Repeat(REPEAT_MAX)),
        }
    }

    fn probability(&self, raw: Option<Spanned<f64>>) -> Result<f64, Wrong> {
        match raw {
            None => Ok(1.0),
            Some(raw) if *raw.get_ref() > 0.0 && *raw.get_ref() <= 1.0 => Ok(raw.into_inner()),
            Some(raw) => self.wrong(&raw, Problem::Probability),
        }
    }

    fn template(&self, raw: &Spanned<String>, names: &Names) -> Result<Template, Wrong> {
        self.at(raw, Template::parse(raw.get_ref(), names))
    }

    /// Adds the line number to an error.
    fn at<T, V>(&self, at: &Spanned<V>, result: Result<T, impl Into<Problem>>) -> Result<T, Wrong> {
        result.or_else(|problem| self.wrong(at, problem.into()))
    }

    fn wrong<T, V>(&self, at: &Spanned<V>, problem: Problem) -> Result<T, Wrong> {
        Err((line_of(self.text, at.span().start), problem))
    }
}

/// The content of a body file that the flow in `file` names. Relative paths start at the flow's directory.
pub(super) fn read_body(file: &Path, path: &Path) -> Result<Bytes, Problem> {
    let file = file.parent().unwrap_or(Path::new("")).join(path);
    let read = fs::metadata(&file)
        .and_then(|metadata| if metadata.len() > BODY_BYTES_MAX { Ok(None) } else { fs::read(&file).map(Some) });
    match read {
        Ok(Some(bytes)) => Ok(bytes.into()),
        Ok(None) => Err(Problem::BodyTooLong { file }),
        Err(cause) => Err(Problem::BodyUnreadable { file, cause }),
    }
}

fn source(raw: &RawTake) -> Result<Source, Problem> {
    Ok(match (&raw.header, &raw.cookie, &raw.regex, &raw.json) {
        (Some(header), None, None, None) => Source::header(header)?,
        (None, Some(cookie), None, None) => Source::Cookie(cookie.clone()),
        (None, None, Some(regex), None) => Source::pattern(regex)?,
        (None, None, None, Some(json)) => Source::pointer(json)?,
        _ => return Err(Problem::Take),
    })
}

fn think(raw: &RawThink, seed: u64) -> Result<Think, Problem> {
    let draw = match raw {
        RawThink::Fixed(time) => return Ok(Think::Fixed(time.get())),
        RawThink::Drawn(RawDraw { uniform, shares, exponential }) => (uniform, shares, exponential),
    };
    match draw {
        (Some([from, to]), None, None) if from > to => Err(Problem::Backwards),
        (Some([from, to]), None, None) => Ok(Think::Uniform(from.get(), to.get())),
        (None, Some(times), None) => {
            Ok(Think::Shares(Shares::new(times.iter().map(|time| time.get()).collect(), seed)?))
        }
        (None, None, Some(mean)) => Ok(Think::Exponential(mean.get())),
        _ => Err(Problem::Think),
    }
}

/// Fields that frame a message or name its host. The client makes them from the URI and the body.
const OWNED: [HeaderName; 4] = [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION];
/// Far longer than flows that are written by hand.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;
const STEPS_MAX: usize = 64;
const NAME_CHARS_MAX: usize = 64;
const REPEAT_MAX: u32 = 10_000;
pub(super) const BODY_BYTES_MAX: u64 = 16 << 20;
