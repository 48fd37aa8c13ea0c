//! Requests to origins that fill or validate an entry, and updates of entries (RFC 9111, sections 3.2 and 4.3).

use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, StatusCode, request, response};
use watari_conditional::date;

use crate::entry::StoredResponse;
use crate::fields::{date_value, end_to_end, entity_tag, stored_fields};
use crate::groups::groups;
use crate::rules::Rules;
use crate::storing::{Received, assess};
use crate::vary::Vary;

/// What the response to a HEAD request means for a stored response (RFC 9111, section 4.3.5).
#[derive(Debug)]
pub enum HeadUpdate {
    /// It is still valid, and has these fields now.
    Updated(Box<StoredResponse>),
    /// The origin has another version: the stored response is stale.
    Outdated,
    /// Nothing, because of the status.
    Nothing,
}

/// Changes a request of a client, for which nothing is stored, into one whose response can be stored: without
/// conditions that only the cache evaluates. HEAD stays HEAD.
///
/// `Range` is removed, too, if the rules fetch the whole content.
pub fn fill_request(request: &mut request::Parts, rules: &Rules) {
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE] {
        request.headers.remove(name);
    }
    if rules.whole_on_range {
        request.headers.remove(RANGE);
    }
}

/// Changes a request of a client into one that validates `stored`. Returns false if it has no validator: then this is
/// [`fill_request`].
///
/// Both validators are sent, if there are two (RFC 9111, section 4.3.1): an origin that has no entity tags for the
/// content any more can use the date.
pub fn validation_request(request: &mut request::Parts, stored: &StoredResponse, rules: &Rules) -> bool {
    fill_request(request, rules);
    let tag = entity_tag(&stored.headers).and_then(|_| stored.headers.get(ETAG));
    let modified = date(&stored.headers, &LAST_MODIFIED).and_then(|_| stored.headers.get(LAST_MODIFIED));
    for (name, validator) in [(IF_NONE_MATCH, tag), (IF_MODIFIED_SINCE, modified)] {
        if let Some(validator) = validator {
            request.headers.insert(name, validator.clone());
        }
    }
    tag.is_some() || modified.is_some()
}

/// The stored response after a 304 to [`validation_request`]. `None`: the 304 is not for it (another strong validator),
/// or it must not be stored any more.
pub fn updated(
    stored: &StoredResponse,
    request: &request::Parts,
    not_modified: &response::Parts,
    received: Received,
    rules: &Rules,
) -> Option<StoredResponse> {
    let is_for_it = is_identified(&stored.headers, &not_modified.headers);
    if is_for_it { refreshed(stored, request, &not_modified.headers, received, rules) } else { None }
}

/// The stored response after a response to HEAD, which may have been for it.
pub fn updated_by_head(
    stored: &StoredResponse,
    request: &request::Parts,
    head: &response::Parts,
    received: Received,
    rules: &Rules,
) -> HeadUpdate {
    if head.status != StatusCode::OK || stored.status != StatusCode::OK {
        return HeadUpdate::Nothing;
    }
    let length = head.headers.get(CONTENT_LENGTH).map(|value| value.to_str().ok()?.parse().ok());
    let has_same_length = length.is_none_or(|length| length == Some(stored.content.len()));
    if !has_same_length || !has_same_validators(&stored.headers, &head.headers) {
        return HeadUpdate::Outdated;
    }
    match refreshed(stored, request, &head.headers, received, rules) {
        Some(stored) => HeadUpdate::Updated(Box::new(stored)),
        None => HeadUpdate::Outdated,
    }
}

/// Whether a 304 identifies the stored response (RFC 9111, section 4.3.4).
///
/// A 304 without validators does: the conditions of the request named this response alone.
fn is_identified(stored: &HeaderMap, new: &HeaderMap) -> bool {
    if let Some(new_tag) = entity_tag(new) {
        let matches = |tag: watari_conditional::EntityTag<'_>| {
            if new_tag.is_weak { tag.matches_weakly(&new_tag) } else { tag.matches_strongly(&new_tag) }
        };
        return entity_tag(stored).is_some_and(matches);
    }
    if new.contains_key(ETAG) {
        return stored.get_all(ETAG).iter().eq(new.get_all(ETAG));
    }
    !new.contains_key(LAST_MODIFIED) || date(stored, &LAST_MODIFIED) == date(new, &LAST_MODIFIED)
}

/// Whether each validator of the new response is that of the stored one (RFC 9111, section 4.3.5).
fn has_same_validators(stored: &HeaderMap, new: &HeaderMap) -> bool {
    [ETAG, LAST_MODIFIED].iter().all(|name| !new.contains_key(name) || stored.get_all(name) == new.get_all(name))
}

/// The stored response with new fields, if it may still be stored, and if its variant is the same.
fn refreshed(
    stored: &StoredResponse,
    request: &request::Parts,
    new: &HeaderMap,
    received: Received,
    rules: &Rules,
) -> Option<StoredResponse> {
    let merged = merged(&stored.headers, new, received);
    let (terms, vary) = assess(&request.headers, stored.status, &merged, received, rules).ok()?;
    if Vary::of(&stored.headers).as_ref() != Ok(&vary) {
        return None;
    }
    Some(StoredResponse {
        url: stored.url.clone(),
        status: stored.status,
        headers: stored_fields(&merged, received.responded),
        terms,
        content: stored.content.clone(),
        groups: groups(&merged),
        shared: stored.shared,
        purges: AtomicU64::new(stored.purges.load(Ordering::Relaxed)),
    })
}

/// The stored fields, replaced by new ones (RFC 9111, section 3.2).
///
/// Three fields stay as they are, because they describe the stored content: `Content-Length`, `Content-Range`, and
/// `Content-Encoding`, which some origins state in a 304 for another coding. `Content-Type` is replaced.
fn merged(stored: &HeaderMap, new: &HeaderMap, received: Received) -> HeaderMap {
    let mut new = end_to_end(new);
    for name in [CONTENT_LENGTH, CONTENT_RANGE, CONTENT_ENCODING] {
        new.remove(name);
    }
    if !new.contains_key(DATE) {
        new.insert(DATE, date_value(received.responded));
    }
    let mut merged = stored.clone();
    for name in new.keys() {
        merged.remove(name);
    }
    merged.extend(new);
    merged
}

#[cfg(test)]
mod tests;
