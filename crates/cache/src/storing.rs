//! Which responses are stored, and for how long they are fresh (RFC 9111, sections 3 and 4.2).

use std::time::{Duration, SystemTime};

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, EXPIRES, LAST_MODIFIED, SET_COOKIE, VARY,
};
use http::{HeaderMap, Method, StatusCode, request, response};
use watari_conditional::{ContentRange, date};

use crate::directives::{CDN_CACHE_CONTROL, RequestDirectives, ResponseDirectives, SECONDS_MAX};
use crate::fields::{age_s, earliest_date, parse_date, strong_validator, validators};
use crate::lists;
use crate::reuse::{Terms, unix_ms, whole_ms};
use crate::rules::{Lifetimes, Rules};
use crate::vary::{Vary, VaryError};

/// The longest heuristic lifetime.
const HEURISTIC_MAX: Duration = Duration::from_hours(24);

/// When a request was sent, and when the head of its response had arrived.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    pub requested: SystemTime,
    pub responded: SystemTime,
}

/// Why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", self.as_str())]
pub enum NotStored {
    Method,
    Status,
    RequestNoStore,
    NoStore,
    Private,
    SetCookie,
    Authorization,
    Vary(#[from] VaryError),
    NoFreshness,
    TooLarge,
    Range,
    Malformed,
}

impl NotStored {
    /// A token: the detail of `Cache-Status`, and the label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Status => "status",
            Self::RequestNoStore => "request-no-store",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::SetCookie => "set-cookie",
            Self::Authorization => "authorization",
            Self::Vary(_) => "vary",
            Self::NoFreshness => "no-freshness",
            Self::TooLarge => "too-large",
            Self::Range => "range",
            Self::Malformed => "malformed",
        }
    }
}

/// Judges a response: returns the terms of its reuse and what it varies by, or why it is not stored. `request` is that
/// of the client: with its `Authorization`, method and directives.
///
/// A 206 is accepted if it can be stored as a part of a 200: with a complete length, one range and a strong validator
/// (RFC 9111, section 3.3).
pub fn judge(
    request: &request::Parts,
    response: &response::Parts,
    received: Received,
    rules: &Rules,
) -> Result<(Terms, Vary), NotStored> {
    if request.method != Method::GET {
        return Err(NotStored::Method);
    }
    check_length(response.status, &response.headers, rules)?;
    assess(&request.headers, response.status, &response.headers, received, rules)
}

/// As [`judge`], for a response to any method, whose content has been accepted.
pub(crate) fn assess(
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    received: Received,
    rules: &Rules,
) -> Result<(Terms, Vary), NotStored> {
    let directives = ResponseDirectives::of(response);
    check_status(status, &directives)?;
    check_directives(request, status, response, &directives)?;
    let vary = Vary::of(response)?;
    let terms = terms(status, response, &directives, received, &rules.lifetimes).ok_or(NotStored::NoFreshness)?;
    Ok((terms, vary))
}

/// The length of the whole content is checked, if it is known.
fn check_length(status: StatusCode, response: &HeaderMap, rules: &Rules) -> Result<(), NotStored> {
    let length = if status == StatusCode::PARTIAL_CONTENT {
        Some(complete_length(response).ok_or(NotStored::Range)?)
    } else {
        let mut lengths = response.get_all(CONTENT_LENGTH).iter().map(|value| value.to_str().ok()?.parse().ok());
        match (lengths.next(), lengths.next()) {
            (None, _) => None,
            (Some(Some(length)), None) => Some(length),
            _ => return Err(NotStored::Malformed),
        }
    };
    if length.is_some_and(|length| length > rules.object_bytes_max) { Err(NotStored::TooLarge) } else { Ok(()) }
}

/// The complete length that a 206 states, if its part may be joined with others (RFC 9111, sections 3.3 and 3.4).
fn complete_length(response: &HeaderMap) -> Option<u64> {
    let mut values = response.get_all(CONTENT_RANGE).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    strong_validator(response)?;
    Some(ContentRange::parse(value.as_bytes())?.length)
}

fn check_status(status: StatusCode, directives: &ResponseDirectives) -> Result<(), NotStored> {
    let is_final = !status.is_informational() && status != StatusCode::NOT_MODIFIED;
    let is_understood = !directives.must_understand || is_understood(status);
    if is_final && is_understood && !depends_on_client(status) { Ok(()) } else { Err(NotStored::Status) }
}

/// RFC 9111, sections 3 and 3.5.
fn check_directives(
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    directives: &ResponseDirectives,
) -> Result<(), NotStored> {
    if RequestDirectives::of(request).no_store {
        return Err(NotStored::RequestNoStore);
    }
    // `must-understand` replaces `no-store` (RFC 9111, section 5.2.2.3).
    if directives.no_store && !(directives.must_understand && is_understood(status)) {
        return Err(NotStored::NoStore);
    }
    if directives.private {
        return Err(NotStored::Private);
    }
    if response.contains_key(SET_COOKIE) && !directives.withheld.contains(&SET_COOKIE) {
        return Err(NotStored::SetCookie);
    }
    // Without them, an update by a 304 would lose what the response forbids.
    let mut removed = directives.withheld.iter().cloned().chain(lists::connection_options(response));
    if removed.any(|name| [CACHE_CONTROL, CDN_CACHE_CONTROL, EXPIRES, VARY].contains(&name)) {
        return Err(NotStored::Malformed);
    }
    let is_shareable = directives.public || directives.must_revalidate || directives.s_maxage.is_some();
    if request.contains_key(AUTHORIZATION) && !is_shareable {
        return Err(NotStored::Authorization);
    }
    Ok(())
}

/// Statuses of RFC 9110, section 15.
fn is_understood(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200..=206 | 300..=303 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505)
}

/// Statuses that answer a part of the request that no key has: credentials, conditions, ranges, content, connection,
/// rate. Another client would get another response.
fn depends_on_client(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 407 | 408 | 411..=413 | 415..=417 | 421 | 425 | 426 | 428 | 429 | 431)
}

/// RFC 9110, section 15.1, without errors: these are stored only as told.
fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 206 | 300 | 301 | 308)
}

/// The terms of reuse. `None`: there is no lifetime, and none is stated so that a validation makes sense.
fn terms(
    status: StatusCode,
    response: &HeaderMap,
    directives: &ResponseDirectives,
    received: Received,
    lifetimes: &Lifetimes,
) -> Option<Terms> {
    let stated = stated_lifetime(response, directives, received);
    let replaced = stated.map(|stated| lifetimes.fixed.unwrap_or(stated));
    let listed = || lifetimes.by_status.get(&status.as_u16()).copied();
    let lifetime = match replaced.or_else(listed) {
        Some(lifetime) => lifetime,
        None if status.is_client_error() || status.is_server_error() => return None,
        None if !is_heuristically_cacheable(status) && !directives.public => return None,
        None => lifetimes.default.unwrap_or_else(|| heuristic_lifetime(response, received)),
    };
    let terms = Terms {
        received_ms: unix_ms(received.responded),
        initial_age_ms: initial_age_ms(response, received),
        lifetime_ms: capped_ms(lifetime),
        stale_while_revalidate_ms: directives
            .stale_while_revalidate
            .or(lifetimes.stale_while_revalidate)
            .map_or(0, capped_ms),
        stale_if_error_ms: directives.stale_if_error.or(lifetimes.stale_if_error).map_or(0, capped_ms),
        is_always_validated: directives.no_cache,
        is_never_stale: directives.must_revalidate || directives.proxy_revalidate || directives.s_maxage.is_some(),
    };
    let is_used_stale = !terms.is_never_stale && terms.stale_while_revalidate_ms.max(terms.stale_if_error_ms) > 0;
    let is_used = !terms.is_always_validated && (terms.lifetime_ms > 0 || is_used_stale && stated.is_some());
    let is_stated = stated.is_some() || directives.no_cache || directives.public || directives.must_revalidate;
    (is_used || is_stated && has_validator(response)).then_some(terms)
}

/// The lifetime that the origin states (RFC 9111, section 4.2.1).
fn stated_lifetime(response: &HeaderMap, directives: &ResponseDirectives, received: Received) -> Option<Duration> {
    let expires = || if directives.is_targeted { None } else { expires(response, received) };
    directives.s_maxage.or(directives.max_age).or_else(expires)
}

/// The lifetime of `Expires`. A malformed date is in the past, and of several dates the earliest counts (RFC 9111,
/// sections 4.2.1 and 5.3).
fn expires(response: &HeaderMap, received: Received) -> Option<Duration> {
    let date = earliest_date(response, &DATE).unwrap_or(received.responded);
    let lifetime = |value| parse_date(value).and_then(|expires| expires.duration_since(date).ok()).unwrap_or_default();
    response.get_all(EXPIRES).iter().map(lifetime).min()
}

/// 10 % of the time since the last modification, at most a day (RFC 9111, section 4.2.2). A `Date` in the future counts
/// as the time of arrival.
fn heuristic_lifetime(response: &HeaderMap, received: Received) -> Duration {
    let now = earliest_date(response, &DATE).map_or(received.responded, |date| date.min(received.responded));
    let unchanged = date(response, &LAST_MODIFIED).and_then(|modified| now.duration_since(modified).ok());
    (unchanged.unwrap_or_default() / 10).min(HEURISTIC_MAX)
}

/// `corrected_initial_age` (RFC 9111, section 4.2.3).
fn initial_age_ms(response: &HeaderMap, received: Received) -> u64 {
    let date = earliest_date(response, &DATE).unwrap_or(received.responded);
    let apparent_s = (unix_ms(received.responded) / 1000).saturating_sub(unix_ms(date) / 1000);
    let delay = received.responded.duration_since(received.requested).unwrap_or_default();
    (1000 * apparent_s).max(whole_ms(delay).saturating_add(1000 * age_s(response)))
}

fn capped_ms(time: Duration) -> u64 {
    whole_ms(time).min(1000 * SECONDS_MAX)
}

fn has_validator(response: &HeaderMap) -> bool {
    let validators = validators(response);
    validators.tag.is_some() || validators.modified.is_some() && !response.contains_key(ETAG)
}

#[cfg(test)]
mod tests;
