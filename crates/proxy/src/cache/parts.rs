//! Parts of stored responses that are missing: they are on their way, or are requested by range.

use std::collections::HashMap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_RANGE, IF_RANGE, RANGE};
use http::{HeaderValue, Response, StatusCode, request};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use watari_body::{Body, BoxError};
use watari_cache::{Content, Entry, Key, ObjectId, PIECE_LEN, StoredResponse};
use watari_cache_store::Store;
use watari_conditional::ContentRange;

use super::fill::{Fill, FillSettings, Reader};
use super::response_cache::ResponseCache;
use super::stage::Keys;
use super::upstream::Upstream;
use crate::route::cache::RouteCache;

/// The fills in progress.
#[derive(Debug, Default)]
pub(super) struct Fills(Mutex<HashMap<ObjectId, Vec<Arc<Fill>>>>);

/// Removes a fill from [`Fills`] when it is dropped.
pub(super) struct Registered {
    fills: Arc<Fills>,
    fill: Arc<Fill>,
}

/// Where the missing parts of one stored response come from.
pub(super) struct Parts {
    cache: Arc<ResponseCache>,
    /// `None`: parts cannot be requested.
    source: Option<PartSource>,
}

/// What a request for a part needs.
pub(super) struct PartSource {
    /// The keys of the stored response.
    pub(super) keys: Keys,
    pub(super) route: Arc<RouteCache>,
    pub(super) upstream: Upstream,
    /// The request of the client, without conditions and ranges.
    pub(super) head: request::Parts,
    /// The strong validator of the stored response, and the length of its content.
    pub(super) validator: HeaderValue,
    pub(super) len: u64,
}

impl Fills {
    /// Makes a fill known to readers, until the guard is dropped.
    pub(super) fn register(self: &Arc<Self>, fill: &Arc<Fill>) -> Registered {
        self.lock().entry(fill.object()).or_default().push(Arc::clone(fill));
        Registered { fills: Arc::clone(self), fill: Arc::clone(fill) }
    }

    /// A reader of a fill that has the byte at `offset`, or will soon have it.
    fn join(&self, object: ObjectId, offset: u64) -> Option<Reader> {
        self.lock().get(&object)?.iter().find_map(|fill| fill.join(offset))
    }

    /// A reader of a fill that has the byte at `offset`, or of a new one, which the caller has to run.
    fn join_or_begin(
        self: &Arc<Self>,
        object: ObjectId,
        offset: u64,
        begin: impl FnOnce() -> (Arc<Fill>, Reader),
    ) -> (Reader, Option<Registered>) {
        let mut fills = self.lock();
        let of_object = fills.entry(object).or_default();
        if let Some(reader) = of_object.iter().find_map(|fill| fill.join(offset)) {
            return (reader, None);
        }
        let (fill, reader) = begin();
        of_object.push(Arc::clone(&fill));
        (reader, Some(Registered { fills: Arc::clone(self), fill }))
    }

    /// A reader that keeps a fill of the object going.
    fn watch(&self, object: ObjectId) -> Option<Reader> {
        self.lock().get(&object)?.iter().find_map(Fill::watch)
    }

    /// The number of objects that are being filled.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, Vec<Arc<Fill>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut fills = self.fills.lock();
        if let Some(of_object) = fills.get_mut(&self.fill.object()) {
            of_object.retain(|fill| !Arc::ptr_eq(fill, &self.fill));
            if of_object.is_empty() {
                fills.remove(&self.fill.object());
            }
        }
    }
}

impl Parts {
    pub(super) fn new(cache: &Arc<ResponseCache>, source: Option<PartSource>) -> Arc<Self> {
        Arc::new(Self { cache: Arc::clone(cache), source })
    }

    pub(super) fn store(&self) -> &Store {
        self.cache.store()
    }

    /// A reader of a fill in progress.
    pub(super) fn filling(&self, object: ObjectId, offset: u64) -> Option<Reader> {
        self.cache.fills.join(object, offset)
    }

    /// Counts a body that was cut.
    pub(super) fn count_cut(&self) {
        self.cache.metrics.cut.inc();
    }

    /// A reader that keeps a fill in progress going.
    pub(super) fn watch(&self, object: ObjectId) -> Option<Reader> {
        self.cache.fills.watch(object)
    }

    /// Requests what is missing of `part`, from its first byte to the first piece that is stored. `None`: parts cannot be
    /// requested.
    pub(super) async fn request(self: Arc<Self>, object: ObjectId, part: Range<u64>) -> Option<Reader> {
        let source = self.source.as_ref()?;
        let missing = self.missing(object, &part, source.len).await;
        let settings = FillSettings { is_to_end: missing.end == source.len, is_resumable: true, stored_max: u64::MAX };
        let begin = || Fill::new(object, missing.start, Some(missing.end), settings);
        let (reader, registered) = self.cache.fills.join_or_begin(object, part.start, begin);
        if let Some(registered) = registered {
            tokio::spawn(async move { self.fill(&registered.fill, missing).await });
        }
        Some(reader)
    }

    /// The range of whole pieces that are missing, from the first byte of `part` on.
    async fn missing(&self, object: ObjectId, part: &Range<u64>, len: u64) -> Range<u64> {
        let first = part.start / PIECE_LEN;
        let mut next = first + 1;
        while next * PIECE_LEN < part.end && self.store().get(&Key::piece(object, next)).await.is_none() {
            next += 1;
        }
        first * PIECE_LEN..(next * PIECE_LEN).min(len)
    }

    async fn fill(&self, fill: &Arc<Fill>, range: Range<u64>) {
        let Some(source) = &self.source else { return };
        let mut head = source.head.clone();
        let value = format!("bytes={}-{}", range.start, range.end - 1);
        head.headers.insert(RANGE, HeaderValue::try_from(value).expect("digits are a valid field value"));
        head.headers.insert(IF_RANGE, source.validator.clone());
        let trace = Arc::default();
        let owner = &source.keys.primary;
        let answered = source.upstream.ask_owner_first(&self.cache, &source.route, owner, head, &trace).await;
        let Ok(response) = answered else { return fill.refuse() };
        match source.accept(response, &range) {
            Accepted::Body(body) => {
                fill.clone().run(Bytes::new(), Some(body), self.store().clone()).await;
            }
            Accepted::OtherVersion => {
                self.forget(&source.keys.variant, fill.object());
                fill.refuse();
            }
            Accepted::Nothing => fill.refuse(),
        }
    }

    /// The origin has another version: the next request is to get that.
    fn forget(&self, key: &Key, object: ObjectId) {
        let entry = self.store().get_now(key);
        if let Some(Entry::Response(StoredResponse { content: Content::Pieces { object: stored, .. }, .. })) =
            entry.as_deref()
            && *stored == object
        {
            self.store().remove(key);
        }
    }
}

/// What the response to a request for a part is.
enum Accepted {
    /// The part, in the stored version.
    Body(Body),
    OtherVersion,
    /// An error.
    Nothing,
}

impl PartSource {
    /// Accepts exactly the range (RFC 9110, section 15.3.7), or the whole content, of the stored version.
    fn accept(&self, response: Response<Body>, range: &Range<u64>) -> Accepted {
        let (head, body) = response.into_parts();
        let validator = watari_cache::strong_validator(&head.headers);
        match head.status {
            StatusCode::PARTIAL_CONTENT if validator == Some(&self.validator) => {
                let sent = head.headers.get(CONTENT_RANGE).and_then(|value| ContentRange::parse(value.as_bytes()));
                let expected = ContentRange { range: range.clone(), length: self.len };
                if sent == Some(expected) { Accepted::Body(body) } else { Accepted::Nothing }
            }
            // The origin has ignored the range.
            StatusCode::OK if validator == Some(&self.validator) && body.size_hint().exact() == Some(self.len) => {
                Accepted::Body(Cropped { body, skipped: range.start, left: range.end - range.start }.boxed_unsync())
            }
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => Accepted::OtherVersion,
            _ => Accepted::Nothing,
        }
    }
}

/// A part of a body.
struct Cropped {
    body: Body,
    /// Bytes before the part that have not come yet.
    skipped: u64,
    /// Bytes of the part that have not come yet.
    left: u64,
}

impl http_body::Body for Cropped {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while self.left > 0 {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
            let mut data = match frame.map(Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_)) => continue,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            let before = usize::try_from(self.skipped).unwrap_or(usize::MAX).min(data.len());
            self.skipped -= before as u64;
            data.advance(before);
            data.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= data.len() as u64;
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
        Poll::Ready(None)
    }
}
