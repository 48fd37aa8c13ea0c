//! From the response of an origin to an entry of the store.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_RANGES, HeaderMap, HeaderValue, RANGE};
use http::{StatusCode, request, response};
use http_body::Body as _;
use rand::RngExt as _;
use watari_body::Body;
use watari_cache::{Content, Entry, Key, ObjectId, PIECE_LEN, StoredResponse, Terms, Vary};
use watari_conditional::ContentRange;

use super::fill::{Fill, FillEnding, FillSettings, Reader};
use super::questions::{Available, Leader, Outcome};
use super::response_cache::{Found, ResponseCache};
use super::stage::{Keys, Stage};

/// The longest content that is stored with its head, in bytes.
const INLINE_MAX: usize = 64 * 1024;

/// The longest content that is stored although its parts cannot be requested again, in bytes. Each response from it holds
/// all of it.
pub(super) const HELD_MAX: u64 = 32 << 20;

/// With so many fills, no further one holds all of its content.
const HOLDING_MAX: usize = 32;

/// A question to the origin, whose response is stored.
pub(super) struct Asked<'a> {
    pub(super) stage: &'a Stage,
    pub(super) leader: Leader,
    pub(super) keys: Keys,
    /// The request of the client.
    pub(super) head: &'a request::Parts,
    /// The number of purges when the origin was asked.
    pub(super) purged: u64,
    /// When the response had arrived.
    pub(super) responded: SystemTime,
}

/// A response that can be answered from, and the reader of its content if that has not arrived completely.
pub(super) struct Filling {
    pub(super) found: Found,
    pub(super) reader: Option<Reader>,
}

/// The content that has arrived without waiting.
struct Arrived {
    content: Bytes,
    then: Then,
}

enum Then {
    End,
    More,
    Cut,
}

impl Asked<'_> {
    /// Begins to store a response.
    pub(super) async fn fill(
        self,
        head: &response::Parts,
        mut body: Body,
        range: Option<ContentRange>,
        (terms, vary): (Terms, Vary),
    ) -> Filling {
        let cache = Arc::clone(self.stage.cache());
        let key = if vary.is_empty() {
            self.keys.primary
        } else {
            cache.store().insert(self.keys.primary, Arc::new(Entry::Varies(vary.clone())));
            self.keys.primary.variant(&vary, &self.head.headers)
        };
        let len = range.as_ref().map_or_else(|| body.size_hint().exact(), |range| Some(range.length));
        // Each use of the response needs a validation of its own.
        let is_for_others = !terms.is_always_validated;
        let Arrived { content: first, then } = arrived(&mut body).await;
        if matches!(then, Then::End) && range.is_none() {
            let found = self.found(key, head, terms, Content::Inline(first));
            cache.store().insert(key, Arc::clone(&found.entry));
            let available = Available { vary, key, found: found.clone(), fill: None };
            self.leader.answered(if is_for_others { Outcome::Available(available) } else { Outcome::Released });
            return Filling { found, reader: None };
        }
        let rest = (!matches!(then, Then::Cut)).then_some(body);
        let object = ObjectId(rand::rng().random());
        let content = len.map_or(Content::Inline(Bytes::new()), |len| Content::Pieces { object, len });
        let found = self.found(key, head, terms, content);
        let found = Found { growing: len.is_none().then_some(object), ..found };
        let (start, end) = range.map_or((0, len), |ContentRange { range, .. }| (range.start, Some(range.end)));
        let is_resumable = len.is_some() && is_resumable(&found.response().headers);
        let object_max = self.stage.route().rules.object_bytes_max;
        let stored_max = match is_resumable {
            true => object_max,
            // It would hold all of its content.
            false if cache.fills.len() >= HOLDING_MAX => 0,
            false => object_max.min(HELD_MAX),
        };
        let settings = FillSettings { is_to_end: end == len, is_resumable, stored_max };
        let (fill, reader) = Fill::new(object, start, end, settings);
        let available = Available { vary, key, found: found.clone(), fill: Some(Arc::clone(&fill)) };
        // Later requests find a resumable response in the store, and its fill by its object. They wait for others.
        let registered = cache.fills.register(&fill);
        let leader = if !is_for_others {
            self.leader.answered(Outcome::Released);
            None
        } else if is_resumable {
            cache.store().insert(key, Arc::clone(&found.entry));
            self.leader.answered(Outcome::Available(Available { fill: None, ..available }));
            None
        } else {
            Some(self.leader.available(available))
        };
        let stored = found.clone();
        tokio::spawn(async move {
            let filled = fill.run(first, rest, cache.store().clone()).await;
            let is_complete = filled.ending == FillEnding::Complete && filled.is_stored;
            cache.metrics.filled_bytes.inc_by(filled.end - start);
            let pieces = (object, filled.end.min(stored_max));
            complete(&cache, key, &stored, pieces, is_complete.then_some(filled.end), is_resumable);
            drop((leader, registered));
        });
        Filling { found, reader: Some(reader) }
    }

    fn found(&self, key: Key, head: &response::Parts, terms: Terms, content: Content) -> Found {
        let rules = &self.stage.route().rules;
        let target = self.head.uri.path_and_query().map_or("/".into(), |target| rules.key.target(target));
        let stored = StoredResponse {
            url: format!("{}{target}", self.stage.authority()).into(),
            status: if head.status == StatusCode::PARTIAL_CONTENT { StatusCode::OK } else { head.status },
            headers: watari_cache::stored_fields(&head.headers, self.responded),
            terms,
            content,
            groups: watari_cache::groups(&head.headers),
            shared: self.stage.route().shared(self.keys.primary),
            purges: AtomicU64::new(self.purged),
        };
        let keys = Keys { variant: key, ..self.keys };
        Found::of(keys, Arc::new(Entry::Response(stored))).expect("it was made as a response")
    }
}

/// The entry of a fill that has ended. `end`: the length of its content, if all of it is stored.
fn complete(
    cache: &ResponseCache,
    key: Key,
    found: &Found,
    (object, end_of_pieces): (ObjectId, u64),
    end: Option<u64>,
    is_resumable: bool,
) {
    match end {
        Some(end) => {
            let is_short = end <= INLINE_MAX as u64;
            let whole = cache.store().get_now(&Key::piece(object, 0)).filter(|_| is_short);
            let content = match whole.as_deref() {
                Some(Entry::Piece(bytes)) if bytes.len() as u64 == end => Content::Inline(bytes.clone()),
                _ if is_resumable => return,
                _ => Content::Pieces { object, len: end },
            };
            // Bodies that have begun may still read the piece.
            cache.store().insert(key, Arc::new(Entry::Response(with_content(found.response(), content))));
        }
        None if is_resumable => {}
        None => {
            // No entry leads to these pieces.
            let pieces = end_of_pieces.div_ceil(PIECE_LEN);
            (0..pieces).for_each(|index| cache.store().remove(&Key::piece(object, index)));
        }
    }
}

fn with_content(stored: &StoredResponse, content: Content) -> StoredResponse {
    StoredResponse {
        url: stored.url.clone(),
        status: stored.status,
        headers: stored.headers.clone(),
        terms: stored.terms,
        content,
        groups: stored.groups.clone(),
        shared: stored.shared,
        purges: AtomicU64::new(stored.purges.load(Ordering::Relaxed)),
    }
}

/// Whether parts of a response with a known length can be requested.
pub(super) fn is_resumable(headers: &HeaderMap) -> bool {
    watari_cache::strong_validator(headers).is_some()
        && headers.get(ACCEPT_RANGES).is_none_or(|units| !units.as_bytes().eq_ignore_ascii_case(b"none"))
}

/// Takes what has arrived of the content, up to [`INLINE_MAX`].
async fn arrived(body: &mut Body) -> Arrived {
    let mut content = BytesMut::new();
    let then = loop {
        if body.is_end_stream() {
            break Then::End;
        }
        if content.len() > INLINE_MAX {
            break Then::More;
        }
        match poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await {
            Poll::Pending => break Then::More,
            Poll::Ready(None) => break Then::End,
            // Trailers are not stored (RFC 9111, section 3.1).
            Poll::Ready(Some(Ok(frame))) => content.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Poll::Ready(Some(Err(_))) => break Then::Cut,
        }
    };
    Arrived { content: content.freeze(), then }
}

/// Extends the range of a request to whole pieces, so that they can be stored. Returns whether it has changed the range.
pub(super) fn align(headers: &mut HeaderMap) -> bool {
    let Some((first, last)) = headers.get(RANGE).and_then(single_range) else { return false };
    let last = last.map(|last| (last / PIECE_LEN + 1).saturating_mul(PIECE_LEN) - 1);
    let first = first / PIECE_LEN * PIECE_LEN;
    let value = last.map_or_else(|| format!("bytes={first}-"), |last| format!("bytes={first}-{last}"));
    headers.insert(RANGE, HeaderValue::try_from(value).expect("digits are a valid field value"));
    true
}

/// `bytes=FIRST-LAST` or `bytes=FIRST-`
fn single_range(value: &HeaderValue) -> Option<(u64, Option<u64>)> {
    let (first, last) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
    Some((first.parse().ok()?, last))
}
