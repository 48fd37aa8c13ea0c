//! `Cache-Control` of requests and responses (RFC 9111, section 5.2), `Pragma`, and `CDN-Cache-Control` (RFC 9213).
//!
//! Of repeated directives, the most restrictive one counts. So it does for malformed ones: a lifetime is then zero (RFC
//! 9111, section 4.2.1), and a permission does not count.

use std::time::Duration;

use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderMap, HeaderName};

use crate::lists::{self, Argument, Directive};
use crate::structured::{self, Value};

/// The longest time that a directive can state (RFC 9111, section 1.2.2).
pub(crate) const SECONDS_MAX: u64 = 1 << 31;

pub(crate) const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// The directives of a request (RFC 9111, section 5.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestDirectives {
    pub no_cache: bool,
    pub no_store: bool,
    pub only_if_cached: bool,
    pub max_age: Option<Duration>,
    pub min_fresh: Option<Duration>,
    /// `Some(Duration::MAX)`: any staleness.
    pub max_stale: Option<Duration>,
    pub stale_if_error: Option<Duration>,
}

/// The directives of a response (RFC 9111, section 5.2.2; RFC 5861; RFC 8246).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a directive")]
pub struct ResponseDirectives {
    pub no_store: bool,
    pub no_cache: bool,
    /// Fields that must not be reused without validation (`no-cache="..."`), and private ones (`private="..."`).
    pub withheld: Vec<HeaderName>,
    pub private: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    pub no_transform: bool,
    pub immutable: bool,
    pub max_age: Option<Duration>,
    pub s_maxage: Option<Duration>,
    pub stale_while_revalidate: Option<Duration>,
    pub stale_if_error: Option<Duration>,
    /// Whether they come from `CDN-Cache-Control`, so that `Cache-Control`, `Expires` and `Pragma` do not count.
    pub is_targeted: bool,
}

impl RequestDirectives {
    /// The directives of a request. `Pragma: no-cache` counts if there is no `Cache-Control`.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        if headers.contains_key(CACHE_CONTROL) {
            lists::directives(headers, &CACHE_CONTROL).for_each(|directive| directives.add(&directive));
        } else {
            directives.no_cache = is_pragma_no_cache(headers);
        }
        directives
    }

    fn add(&mut self, directive: &Directive<'_>) {
        match directive.name.to_ascii_lowercase().as_slice() {
            b"no-cache" => self.no_cache = true,
            b"no-store" => self.no_store = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => shorten(&mut self.max_age, directive.seconds().unwrap_or_default()),
            b"min-fresh" => {
                let time = directive.seconds().unwrap_or(Duration::from_secs(SECONDS_MAX));
                self.min_fresh = self.min_fresh.max(Some(time));
            }
            b"max-stale" if directive.argument.is_none() => shorten(&mut self.max_stale, Duration::MAX),
            b"max-stale" => shorten(&mut self.max_stale, directive.seconds().unwrap_or_default()),
            b"stale-if-error" => shorten(&mut self.stale_if_error, directive.seconds().unwrap_or_default()),
            _ => {}
        }
    }
}

impl ResponseDirectives {
    /// The directives of a response. A malformed `CDN-Cache-Control` is ignored, except for what it forbids (RFC 9213,
    /// section 2.1).
    pub fn of(headers: &HeaderMap) -> Self {
        let targeted = targeted(headers);
        if let Some((directives, true)) = targeted {
            return directives;
        }
        let mut directives = Self::default();
        if headers.contains_key(CACHE_CONTROL) {
            lists::directives(headers, &CACHE_CONTROL).for_each(|directive| directives.add(&directive));
        } else {
            directives.no_cache = is_pragma_no_cache(headers);
        }
        if let Some((forbidden, false)) = targeted {
            directives.no_store |= forbidden.no_store;
            directives.no_cache |= forbidden.no_cache;
            directives.private |= forbidden.private;
        }
        directives
    }

    fn add(&mut self, directive: &Directive<'_>) {
        let seconds = || directive.seconds().unwrap_or_default();
        // What permits something has no argument, and is well-formed.
        let permits = directive.argument.is_none() && !directive.is_malformed;
        match directive.name.to_ascii_lowercase().as_slice() {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache |= !self.withhold(directive.fields()),
            b"private" => self.private |= !self.withhold(directive.fields()),
            b"public" => self.public |= permits,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand |= permits,
            b"no-transform" => self.no_transform = true,
            b"immutable" => self.immutable |= permits,
            b"max-age" => shorten(&mut self.max_age, seconds()),
            b"s-maxage" => shorten(&mut self.s_maxage, seconds()),
            b"stale-while-revalidate" => shorten(&mut self.stale_while_revalidate, seconds()),
            b"stale-if-error" => shorten(&mut self.stale_if_error, seconds()),
            _ => {}
        }
    }

    /// Adds a directive of `CDN-Cache-Control`. Returns false if the type of its value is wrong.
    fn add_targeted(&mut self, name: &str, value: &Value) -> bool {
        let time = match name {
            "max-age" => &mut self.max_age,
            "s-maxage" => &mut self.s_maxage,
            "stale-while-revalidate" => &mut self.stale_while_revalidate,
            "stale-if-error" => &mut self.stale_if_error,
            _ => return self.add_targeted_flag(name, value),
        };
        match value {
            Value::Integer(seconds @ 0..) => {
                *time = Some(Duration::from_secs(seconds.unsigned_abs().min(SECONDS_MAX)));
                true
            }
            _ => false,
        }
    }

    fn add_targeted_flag(&mut self, name: &str, value: &Value) -> bool {
        let is_set = *value != Value::Boolean(false);
        let fields = || match value {
            Value::String(fields) => lists::names(fields.as_bytes()).filter(|fields| !fields.is_empty()),
            _ => None,
        };
        match name {
            "no-cache" => self.no_cache = is_set && !self.withhold(fields()),
            "private" => self.private = is_set && !self.withhold(fields()),
            "no-store" => self.no_store = is_set,
            "public" => self.public = is_set,
            "must-revalidate" => self.must_revalidate = is_set,
            "proxy-revalidate" => self.proxy_revalidate = is_set,
            "must-understand" => self.must_understand = is_set,
            "no-transform" => self.no_transform = is_set,
            "immutable" => self.immutable = is_set,
            _ => return true,
        }
        matches!(value, Value::Boolean(_)) || fields().is_some() && matches!(name, "no-cache" | "private")
    }

    fn withhold(&mut self, fields: Option<Vec<HeaderName>>) -> bool {
        let is_qualified = fields.is_some();
        self.withheld.extend(fields.unwrap_or_default());
        is_qualified
    }
}

impl Directive<'_> {
    /// The argument as a time (RFC 9111, section 1.2.2), in both forms (section 5.2). `None`: there is none, or it is
    /// malformed.
    fn seconds(&self) -> Option<Duration> {
        let argument = self.argument.as_ref().filter(|_| !self.is_malformed)?;
        Some(Duration::from_secs(delta_seconds(argument.value)?))
    }

    /// The names of fields of `no-cache="..."` or `private="..."`. `None`: the directive is for the whole response.
    fn fields(&self) -> Option<Vec<HeaderName>> {
        match &self.argument {
            Some(Argument { value, is_quoted: true }) if !self.is_malformed => {
                lists::names(value).filter(|names| !names.is_empty())
            }
            _ => None,
        }
    }
}

/// A number of seconds, capped (RFC 9111, section 1.2.2).
pub(crate) fn delta_seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = std::str::from_utf8(text).ok()?;
    Some(digits.parse().unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
}

fn shorten(time: &mut Option<Duration>, other: Duration) {
    *time = Some(time.map_or(other, |time| time.min(other)));
}

/// RFC 9111, section 5.4.
fn is_pragma_no_cache(headers: &HeaderMap) -> bool {
    lists::directives(headers, &PRAGMA).any(|directive| directive.name.eq_ignore_ascii_case(b"no-cache"))
}

/// The directives of `CDN-Cache-Control`, and whether they are well-formed. `None`: there is no such field.
fn targeted(headers: &HeaderMap) -> Option<(ResponseDirectives, bool)> {
    headers.get(CDN_CACHE_CONTROL)?;
    let lines: Result<Vec<&str>, _> =
        headers.get_all(CDN_CACHE_CONTROL).iter().map(http::HeaderValue::to_str).collect();
    let text = lines.unwrap_or_default().join(", ");
    let mut directives = ResponseDirectives { is_targeted: true, ..ResponseDirectives::default() };
    let Some(members) = structured::dictionary(&text).filter(|members| !members.is_empty()) else {
        lists::directives(headers, &CDN_CACHE_CONTROL).for_each(|directive| directives.add(&directive));
        return Some((directives, false));
    };
    let mut is_valid = true;
    for (name, value) in &members {
        is_valid &= directives.add_targeted(name, value);
    }
    Some((directives, is_valid))
}

#[cfg(test)]
mod tests;
