//! Requests to origins, for entries.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use http::header::{CONTENT_RANGE, HeaderMap, IF_RANGE};
use http::uri::PathAndQuery;
use http::{HeaderName, Response, StatusCode, Uri, request, response};
use http_body::Body as _;
use watari_body::Body;
use watari_cache::{
    Entry, Forwarded, HeadUpdate, KeyRules, NotStored, Received, RequestDirectives, StoredResponse, Vary,
};
use watari_conditional::ContentRange;

use super::answering::passed;
use super::filling::{Asked, HELD_MAX, align, is_resumable};
use super::questions::{Available, Leader, Outcome};
use super::response_cache::Found;
use super::stage::{Keys, Stage};
use crate::exchange::failure::Failure;
use crate::exchange::fields;

/// Fields of requests that some origins obey, and that are in no key: with them, one client could choose the response
/// that others get. Fields about the client itself (`Forwarded`, `X-Forwarded-For`) are the proxy's own.
const UNKEYED: [&str; 15] = [
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-original-host",
    "x-host",
    "x-url-scheme",
    "front-end-https",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-forwarded-scheme",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-server",
];

impl Stage {
    /// Asks the origin, also for the followers of this question.
    pub(super) async fn lead(
        &self,
        leader: Leader,
        keys: Keys,
        head: request::Parts,
        stale: Option<Found>,
    ) -> Result<Response<Body>, Failure> {
        let mut request = head.clone();
        let rules = &self.route().rules;
        select_target(&mut request, &rules.key);
        let is_validation = if let Some(found) = &stale {
            watari_cache::validation_request(&mut request, found.response(), rules)
        } else {
            watari_cache::fill_request(&mut request, rules);
            false
        };
        let is_aligned = align(&mut request.headers);
        let (purged, requested) = (self.cache().purged(), SystemTime::now());
        let asked = self.upstream().ask_owner_first(self.cache(), self.route(), &keys.primary, request, self.trace());
        let response = match asked.await {
            Ok(response) => response,
            Err(failure) => {
                leader.answered(Outcome::Failed(failure.status()));
                return self.failed(failure, stale, &head).await;
            }
        };
        let received = Received { requested, responded: SystemTime::now() };
        if let Some(found) = &stale {
            if is_validation && response.status() == StatusCode::NOT_MODIFIED {
                let (not_modified, _) = response.into_parts();
                let updated = watari_cache::updated(found.response(), &head, &not_modified, received, rules);
                if let Some(updated) = updated {
                    return self.revalidated(leader, keys, head, updated, purged).await;
                }
                self.cache().store().remove(&keys.variant);
                return Box::pin(self.lead(leader, keys, head, None)).await;
            }
            if is_failure(response.status()) && may_answer_stale(found, &head) {
                leader.answered(Outcome::Failed(response.status()));
                return self.stale(found, &head).await.ok_or(Failure::NoOrigin);
            }
        }
        let (response, body) = response.into_parts();
        let judged = watari_cache::judge(&head, &response, received, rules);
        let judged = judged.and_then(|judged| storable(&response, &body).map(|range| (judged, range)));
        match judged {
            Ok(((terms, vary), range)) => {
                self.cache().collapse(&keys.variant);
                let asked = Asked { stage: self, leader, keys, head: &head, purged, responded: received.responded };
                let filling = asked.fill(&response, body, range, (terms, vary)).await;
                self.missed(filling, &head, &response).await
            }
            Err(reason) => {
                let is_replaced = stale.is_some() && replaces(response.status);
                self.not_stored(leader, keys, reason, is_replaced);
                // The origin was asked for another range, or without the version that the client has a part of.
                let is_range =
                    matches!(response.status, StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE);
                if is_range && (is_aligned || head.headers.contains_key(IF_RANGE)) {
                    return self.pass(head).await;
                }
                Ok(self.unstored(Response::from_parts(response, body), reason))
            }
        }
    }

    /// The response to a request that has no use for a fill, or whose response would not be stored.
    pub(super) async fn pass(&self, head: request::Parts) -> Result<Response<Body>, Failure> {
        let response = self.upstream().ask(head, self.trace()).await?;
        Ok(passed(self.cache(), self.trace(), response, Forwarded::Miss))
    }

    /// Asks for a head. It may update the stored response, or show that it is outdated (RFC 9111, section 4.3.5).
    pub(super) async fn ask_for_head(
        &self,
        keys: Keys,
        head: request::Parts,
        stale: Option<Found>,
    ) -> Result<Response<Body>, Failure> {
        let requested = SystemTime::now();
        let Some(found) = stale else { return self.pass(head).await };
        let response = match self.upstream().ask(head.clone(), self.trace()).await {
            Ok(response) => response,
            Err(failure) => return self.failed(failure, Some(found), &head).await,
        };
        let received = Received { requested, responded: SystemTime::now() };
        let (parts, body) = response.into_parts();
        match watari_cache::updated_by_head(found.response(), &head, &parts, received, &self.route().rules) {
            HeadUpdate::Updated(updated) => {
                self.cache().store().insert(keys.variant, Entry::Response(*updated).into());
            }
            HeadUpdate::Outdated => self.cache().store().remove(&keys.variant),
            HeadUpdate::Nothing => {}
        }
        Ok(passed(self.cache(), self.trace(), Response::from_parts(parts, body), Forwarded::Stale))
    }

    /// The response to a request whose question has failed: the stale entry, if it may be used.
    pub(super) async fn failed(
        &self,
        failure: Failure,
        stale: Option<Found>,
        head: &request::Parts,
    ) -> Result<Response<Body>, Failure> {
        match stale.filter(|found| may_answer_stale(found, head)) {
            Some(found) => self.stale(&found, head).await.ok_or(failure),
            None => Err(failure),
        }
    }

    fn not_stored(&self, leader: Leader, keys: Keys, reason: NotStored, was_stored: bool) {
        self.cache().metrics.count_not_stored(reason);
        if was_stored {
            self.cache().store().remove(&keys.variant);
        }
        self.cache().release(keys.variant);
        leader.answered(Outcome::Released);
    }

    /// The validated entry, which replaces the stale one.
    async fn revalidated(
        &self,
        leader: Leader,
        keys: Keys,
        head: request::Parts,
        updated: StoredResponse,
        purged: u64,
    ) -> Result<Response<Body>, Failure> {
        updated.purges.store(purged, Ordering::Relaxed);
        let vary = Vary::of(&updated.headers).unwrap_or_default();
        let is_for_others = !updated.terms.is_always_validated;
        let found = Found::of(keys, Entry::Response(updated).into()).ok_or(Failure::NoOrigin)?;
        self.cache().store().insert(keys.variant, found.entry.clone());
        leader.answered(if is_for_others {
            Outcome::Available(Available { vary, key: keys.variant, found: found.clone(), fill: None })
        } else {
            Outcome::Released
        });
        if let Some(response) = self.validated(&found, &head).await {
            return Ok(response);
        }
        // Its content is no longer stored.
        self.cache().store().remove(&keys.variant);
        self.pass(head).await
    }
}

pub(super) fn remove_unkeyed(headers: &mut HeaderMap, keyed: &[HeaderName]) {
    let is_unkeyed = |name: &str| UNKEYED.iter().any(|unkeyed| fields::are_alike(unkeyed, name));
    fields::remove_if(headers, |name| is_unkeyed(name) && !keyed.iter().any(|keyed| keyed == name));
}

/// Leaves out the query fields that do not select an entry: a response that depends on them would be for all.
pub(super) fn select_target(request: &mut request::Parts, key: &KeyRules) {
    let Some(target) = request.uri.path_and_query() else { return };
    let selected = key.target(target);
    if *selected != *target.as_str()
        && let Ok(selected) = PathAndQuery::try_from(&*selected)
    {
        request.uri = Uri::from(selected);
    }
}

/// The range of a 206 that can be stored, with the complete length. `None`: the response has the whole content.
fn storable(head: &response::Parts, body: &Body) -> Result<Option<ContentRange>, NotStored> {
    if head.status == StatusCode::PARTIAL_CONTENT {
        let range = head.headers.get(CONTENT_RANGE).and_then(|value| ContentRange::parse(value.as_bytes()));
        let len = body.size_hint().exact();
        let fits = |part: &ContentRange| len.is_none_or(|len| len == part.range.end - part.range.start);
        return range.filter(fits).map(Some).ok_or(NotStored::Range);
    }
    let is_short = body.size_hint().exact().is_none_or(|len| len <= HELD_MAX);
    if is_short || is_resumable(&head.headers) { Ok(None) } else { Err(NotStored::TooLarge) }
}

/// Whether a response that is not stored shows that the stored one is outdated. Errors do not.
fn replaces(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection() || matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

fn may_answer_stale(found: &Found, head: &request::Parts) -> bool {
    watari_cache::may_answer_stale(&found.response().terms, &RequestDirectives::of(&head.headers), SystemTime::now())
}

/// The statuses after which a stale response may be used (RFC 5861, section 4).
fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
