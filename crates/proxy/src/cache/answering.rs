//! The responses to clients, from entries and from origins.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RANGE, SET_COOKIE};
use http::{Method, Response, StatusCode, request, response};
use http_body_util::BodyExt as _;
use watari_body::{Body, empty, full};
use watari_cache::{
    Answer, CACHE_NAME, CACHE_STATUS, CacheStatus, Content, Forwarded, Key, NotStored, ObjectId, RequestDirectives,
    ResponseDirectives, Reuse, Selected, StoredResponse,
};

use super::asking::select_target;
use super::body::{CachedBody, ContentSource};
use super::fill::Reader;
use super::filling::{Filling, is_resumable};
use super::metrics::CacheResult;
use super::parts::{PartSource, Parts};
use super::questions::Available;
use super::response_cache::{Found, ResponseCache};
use super::stage::Stage;
use crate::exchange::failure::Failure;
use crate::observe::access_log::RequestTrace;

/// Marks the response to a request that has begun a fill. It is stored in the response's extensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct BeginsFill;

impl Stage {
    /// The response from a stored one. `None`: its content is no longer stored, and cannot be requested again.
    pub(super) async fn hit(
        &self,
        found: &Found,
        head: &request::Parts,
        age: Duration,
        result: CacheResult,
    ) -> Option<Response<Body>> {
        let response = self.answer(found, None, head, age, &hit(found.response(), SystemTime::now())).await?;
        self.count(result);
        Some(response)
    }

    /// The stale entry, after its validation has failed.
    pub(super) async fn stale(&self, found: &Found, head: &request::Parts) -> Option<Response<Body>> {
        let status = CacheStatus { forwarded: Some(Forwarded::Stale), ..CacheStatus::default() };
        self.answer_now(found, None, head, &status, CacheResult::Stale).await
    }

    /// The entry after its validation.
    pub(super) async fn validated(&self, found: &Found, head: &request::Parts) -> Option<Response<Body>> {
        let status = CacheStatus { is_stored: true, ..forwarded(Forwarded::Stale, StatusCode::NOT_MODIFIED) };
        self.answer_now(found, None, head, &status, CacheResult::Revalidated).await
    }

    /// The response to a request that has followed a question of another one. `None`: the response is not for it.
    pub(super) async fn collapsed(
        &self,
        available: &Available,
        primary: Key,
        head: &request::Parts,
    ) -> Option<Response<Body>> {
        let variant = if available.vary.is_empty() { primary } else { primary.variant(&available.vary, &head.headers) };
        let response = available.found.response();
        let reuse = watari_cache::reuse(&response.terms, &RequestDirectives::of(&head.headers), SystemTime::now());
        if variant != available.key || reuse == Reuse::Validate || self.cache().is_purged(response) {
            return None;
        }
        let reader = match &available.fill {
            Some(fill) => Some(fill.join(0)?),
            None => None,
        };
        let status = CacheStatus { forwarded: Some(Forwarded::UriMiss), is_collapsed: true, ..CacheStatus::default() };
        self.answer_now(&available.found, reader, head, &status, CacheResult::Collapsed).await
    }

    /// The response to the request that has begun a fill, from the response of the origin. It alone gets the fields that
    /// are not stored.
    pub(super) async fn missed(
        &self,
        Filling { found, reader }: Filling,
        head: &request::Parts,
        origin: &response::Parts,
    ) -> Result<Response<Body>, Failure> {
        let status = CacheStatus { is_stored: true, ..forwarded(Forwarded::UriMiss, origin.status) };
        let answered = self.answer_now(&found, reader, head, &status, CacheResult::Miss).await;
        let mut response = answered.ok_or(Failure::NoOrigin)?;
        response.extensions_mut().insert(BeginsFill);
        for name in ResponseDirectives::of(&origin.headers).withheld.into_iter().chain([SET_COOKIE]) {
            for value in origin.headers.get_all(&name) {
                response.headers_mut().append(&name, value.clone());
            }
        }
        Ok(response)
    }

    /// A response of the origin that was not stored.
    pub(super) fn unstored(&self, response: Response<Body>, reason: NotStored) -> Response<Body> {
        let status = CacheStatus { detail: Some(reason.as_str()), ..forwarded(Forwarded::UriMiss, response.status()) };
        self.count(CacheResult::Miss);
        with_status(response, &status)
    }

    fn count(&self, result: CacheResult) {
        count(self.cache(), self.trace(), result);
    }

    async fn answer_now(
        &self,
        found: &Found,
        reader: Option<Reader>,
        head: &request::Parts,
        status: &CacheStatus,
        result: CacheResult,
    ) -> Option<Response<Body>> {
        let age = found.response().terms.age(SystemTime::now());
        let response = self.answer(found, reader, head, age, status).await?;
        self.count(result);
        Some(response)
    }

    async fn answer(
        &self,
        found: &Found,
        reader: Option<Reader>,
        head: &request::Parts,
        age: Duration,
        status: &CacheStatus,
    ) -> Option<Response<Body>> {
        let stored = found.response();
        if let Some(object) = found.growing {
            return Some(self.growing(stored, object, reader, head, age, status));
        }
        let Answer { head: response, selected } = watari_cache::answer(stored, head, age, status);
        let body = match (&stored.content, selected) {
            (_, Selected::Nothing) => empty(),
            (Content::Inline(bytes), selected) => inline(bytes, selected),
            (Content::Pieces { object, len }, selected) => {
                let source = self.part_source(found, head, *len);
                let pieces = match (&source, &reader) {
                    (None, None) => self.cache().hold(*object, *len).await?,
                    _ => Vec::new(),
                };
                let parts = Parts::new(self.cache(), source);
                CachedBody::new(selected, ContentSource::pieces(*object, parts, pieces, reader)).boxed_unsync()
            }
        };
        Some(Response::from_parts(response, body))
    }

    /// The response from content whose length is unknown. It has no ranges.
    fn growing(
        &self,
        stored: &StoredResponse,
        object: ObjectId,
        reader: Option<Reader>,
        head: &request::Parts,
        age: Duration,
        status: &CacheStatus,
    ) -> Response<Body> {
        let mut head = head.clone();
        head.headers.remove(RANGE);
        let Answer { head: mut response, selected } = watari_cache::answer(stored, &head, age, status);
        if selected == Selected::Nothing {
            return Response::from_parts(response, empty());
        }
        response.headers.remove(CONTENT_LENGTH);
        let source = ContentSource::pieces(object, Parts::new(self.cache(), None), Vec::new(), reader);
        Response::from_parts(response, CachedBody::growing(source).boxed_unsync())
    }

    /// Where parts of the content come from that are not stored.
    fn part_source(&self, found: &Found, head: &request::Parts, len: u64) -> Option<PartSource> {
        let fields = &found.response().headers;
        let validator = watari_cache::strong_validator(fields).filter(|_| is_resumable(fields))?.clone();
        let mut head = head.clone();
        head.method = Method::GET;
        watari_cache::fill_request(&mut head, &self.route().rules);
        select_target(&mut head, &self.route().rules.key);
        let (route, upstream) = (Arc::clone(self.route()), self.upstream().clone());
        Some(PartSource { keys: found.keys, route, upstream, head, validator, len })
    }
}

/// The response from a stored one, if all of its content is in the entry. It is `age` old at `now`.
pub(super) fn from_inline(
    stored: &StoredResponse,
    head: &request::Parts,
    age: Duration,
    now: SystemTime,
) -> Option<Response<Body>> {
    let Content::Inline(bytes) = &stored.content else { return None };
    let Answer { head: response, selected } = watari_cache::answer(stored, head, age, &hit(stored, now));
    Some(Response::from_parts(response, inline(bytes, selected)))
}

/// The response to a request that went around the cache, or for which the cache had no use.
pub(crate) fn passed(
    cache: &ResponseCache,
    trace: &RequestTrace,
    response: Response<Body>,
    why: Forwarded,
) -> Response<Body> {
    let is_miss = matches!(why, Forwarded::Miss | Forwarded::Stale);
    count(cache, trace, if is_miss { CacheResult::Miss } else { CacheResult::Bypass });
    let status = forwarded(why, response.status());
    with_status(response, &status)
}

fn with_status(mut response: Response<Body>, status: &CacheStatus) -> Response<Body> {
    response.headers_mut().append(CACHE_STATUS, status.to_value(CACHE_NAME));
    response
}

pub(super) fn count(cache: &ResponseCache, trace: &RequestTrace, result: CacheResult) {
    trace.set_cache(result.as_str());
    cache.metrics.count(result);
}

fn inline(bytes: &Bytes, selected: Selected) -> Body {
    match selected {
        Selected::Nothing => empty(),
        Selected::Part(part) => full(bytes.slice(part.start as usize..part.end as usize)),
        selected @ Selected::Parts(..) => {
            CachedBody::new(selected, ContentSource::Inline(bytes.clone())).boxed_unsync()
        }
    }
}

fn hit(stored: &StoredResponse, now: SystemTime) -> CacheStatus {
    CacheStatus { ttl_s: Some(stored.terms.ttl_s(now)), ..CacheStatus::default() }
}

fn forwarded(why: Forwarded, status: StatusCode) -> CacheStatus {
    CacheStatus { forwarded: Some(why), forwarded_status: Some(status.as_u16()), ..CacheStatus::default() }
}
