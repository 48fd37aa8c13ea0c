//! Parts of stored responses that are missing: they are on their way, or are requested by range.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_RANGE, IF_RANGE, RANGE};
use http::{HeaderValue, Response, StatusCode, request};
use watari_body::Body;
use watari_cache::{Key, ObjectId, PIECE_LEN};
use watari_cache_store::Store;

use super::fill::{Fill, FillSettings, Reader};
use super::response_cache::ResponseCache;
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
    /// The key of the stored response.
    pub(super) key: Key,
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
        let answered = source.upstream.ask_owner_first(&self.cache, &source.route, &source.key, head, &trace).await;
        let Ok(response) = answered else { return fill.refuse() };
        if let Some(body) = source.accept(response, &range) {
            fill.clone().run(Bytes::new(), Some(body), self.store().clone()).await;
        } else {
            // The origin has another version: the next request is to get that.
            self.store().remove(&source.key);
            fill.refuse();
        }
    }
}

impl PartSource {
    /// The body of a response that is exactly the range, in the stored version (RFC 9110, section 15.3.7).
    fn accept(&self, response: Response<Body>, range: &Range<u64>) -> Option<Body> {
        let (head, body) = response.into_parts();
        let expected = format!("bytes {}-{}/{}", range.start, range.end - 1, self.len);
        let is_range = head.status == StatusCode::PARTIAL_CONTENT
            && head.headers.get(CONTENT_RANGE).is_some_and(|value| value.as_bytes() == expected.as_bytes());
        (is_range && watari_cache::strong_validator(&head.headers) == Some(&self.validator)).then_some(body)
    }
}
