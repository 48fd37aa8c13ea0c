//! The body of a response from the cache.
//!
//! ```text
//!   next byte: in memory? --> on the disk? --> on its way from the origin? --> request it by range
//!                 |               |                  |                            |
//!                 '---------------'--> a piece       '------- a reader of the fill '
//! ```
//!
//! Parts that are missing are requested only if the stored response has a strong validator, and only in that version.
//! Otherwise the body ends with an error, and the client can detect that it is cut.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use watari_body::BoxError;
use watari_cache::{Entry, Key, ObjectId, PIECE_LEN, Selected};

use super::fill::{Read, Reader};
use super::parts::Parts;

/// Why a response from the cache was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum CacheBodyError {
    #[error("the origin cut the response that fills the cache")]
    Cut,
    #[error("a part of the response is no longer stored, and the origin does not have it in this version")]
    Gone,
}

/// The body of a response from the cache.
pub(super) struct CachedBody {
    segments: VecDeque<Segment>,
    source: ContentSource,
}

/// A part of the body.
enum Segment {
    /// A text of `multipart/byteranges`.
    Text(Bytes),
    /// A part of the content. The end of `u64::MAX` is that of content with an unknown length.
    Content(Range<u64>),
}

/// Where content comes from.
pub(super) enum ContentSource {
    Inline(Bytes),
    Pieces(Pieces),
}

/// Content in pieces.
pub(super) struct Pieces {
    object: ObjectId,
    parts: Arc<Parts>,
    /// Pieces that this body holds, from the first on, because they could not be requested again.
    held: Vec<Arc<Entry>>,
    at: Position,
    /// Keeps a fill going while this body reads pieces behind it, which the store has.
    behind: Option<Reader>,
    /// Whether a part was requested, and no byte of it has come.
    has_asked: bool,
}

/// Where the next bytes come from.
enum Position {
    Unknown,
    /// A piece, and the offset of its first byte.
    Piece(Bytes, u64),
    Filling(Reader),
    Looking(Pin<Box<dyn Future<Output = Option<Arc<Entry>>> + Send>>),
    Asking(Pin<Box<dyn Future<Output = Option<Reader>> + Send>>),
}

impl CachedBody {
    /// The selected parts of the content.
    pub(super) fn new(selected: Selected, source: ContentSource) -> Self {
        let segments = match selected {
            Selected::Nothing => VecDeque::new(),
            Selected::Part(part) => [Segment::Content(part)].into(),
            Selected::Parts(parts, end) => {
                let parts =
                    parts.into_iter().flat_map(|(text, part)| [Segment::Text(text.into()), Segment::Content(part)]);
                parts.chain([Segment::Text(end.into())]).collect()
            }
        };
        Self { segments, source }
    }

    /// All of content whose length is unknown.
    pub(super) fn growing(source: ContentSource) -> Self {
        Self { segments: [Segment::Content(0..u64::MAX)].into(), source }
    }
}

impl ContentSource {
    /// Pieces, which `reader` reads first.
    pub(super) fn pieces(object: ObjectId, parts: Arc<Parts>, held: Vec<Arc<Entry>>, reader: Option<Reader>) -> Self {
        let (at, behind) = match reader {
            Some(reader) => (Position::Filling(reader), None),
            None => (Position::Unknown, parts.watch(object)),
        };
        Self::Pieces(Pieces { object, parts, held, at, behind, has_asked: false })
    }

    /// The next bytes of a part of the content. `None`: content of unknown length has ended.
    fn poll_part(&mut self, cx: &mut Context<'_>, part: &Range<u64>) -> Poll<Result<Option<Bytes>, CacheBodyError>> {
        let bytes = match self {
            Self::Inline(bytes) => bytes.slice(part.start as usize..),
            Self::Pieces(pieces) => match ready!(pieces.poll_at(cx, part)) {
                Ok(Some(bytes)) => bytes,
                end => return Poll::Ready(end),
            },
        };
        let len = usize::try_from(part.end - part.start).unwrap_or(usize::MAX).min(bytes.len());
        Poll::Ready(Ok(Some(bytes.slice(..len))))
    }
}

impl Pieces {
    fn poll_at(&mut self, cx: &mut Context<'_>, part: &Range<u64>) -> Poll<Result<Option<Bytes>, CacheBodyError>> {
        let offset = part.start;
        loop {
            match &mut self.at {
                Position::Unknown => {
                    let (index, key) = (offset / PIECE_LEN, Key::piece(self.object, offset / PIECE_LEN));
                    let held = self.held.get(index as usize).cloned();
                    self.at = match held.or_else(|| self.parts.store().get_now(&key)).and_then(|entry| piece(&entry)) {
                        Some(bytes) => Position::Piece(bytes, index * PIECE_LEN),
                        None => match self.parts.filling(self.object, offset) {
                            Some(reader) => {
                                self.behind = None;
                                Position::Filling(reader)
                            }
                            None => self.look_up(offset),
                        },
                    };
                }
                Position::Piece(bytes, begin) => {
                    let within = offset.checked_sub(*begin).filter(|within| *within < PIECE_LEN);
                    let Some(within) = within else {
                        self.at = Position::Unknown;
                        continue;
                    };
                    // A piece is shorter than others only at the end of the content.
                    let rest = bytes.get(within as usize..).filter(|rest| !rest.is_empty());
                    let rest = rest.map(|rest| bytes.slice_ref(rest)).ok_or(CacheBodyError::Gone);
                    self.has_asked = false;
                    return Poll::Ready(rest.map(Some));
                }
                Position::Filling(reader) => match ready!(reader.poll_read(cx, offset)) {
                    Read::Bytes(bytes) => {
                        self.has_asked = false;
                        return Poll::Ready(Ok(Some(bytes)));
                    }
                    Read::Elsewhere => {
                        let looking = self.look_up(offset);
                        if let Position::Filling(reader) = mem::replace(&mut self.at, looking) {
                            self.behind = Some(reader);
                        }
                    }
                    Read::End if part.end == u64::MAX => return Poll::Ready(Ok(None)),
                    Read::Cut if part.end == u64::MAX || self.has_asked => {
                        return Poll::Ready(Err(CacheBodyError::Cut));
                    }
                    Read::End => self.at = self.look_up(offset),
                    Read::Cut => self.at = self.ask(part),
                },
                Position::Looking(found) => {
                    let found = ready!(found.as_mut().poll(cx));
                    self.at = match found.and_then(|entry| piece(&entry)) {
                        Some(bytes) => Position::Piece(bytes, offset / PIECE_LEN * PIECE_LEN),
                        None => self.ask(part),
                    };
                }
                Position::Asking(asking) => {
                    let reader = ready!(asking.as_mut().poll(cx)).ok_or(CacheBodyError::Gone)?;
                    self.at = Position::Filling(reader);
                }
            }
        }
    }

    fn look_up(&self, offset: u64) -> Position {
        let (store, key) = (self.parts.store().clone(), Key::piece(self.object, offset / PIECE_LEN));
        Position::Looking(Box::pin(async move { store.get(&key).await }))
    }

    /// Requests what is missing of a part.
    fn ask(&mut self, part: &Range<u64>) -> Position {
        self.has_asked = true;
        let (parts, object, part) = (Arc::clone(&self.parts), self.object, part.clone());
        Position::Asking(Box::pin(async move { parts.request(object, part).await }))
    }
}

fn piece(entry: &Entry) -> Option<Bytes> {
    match entry {
        Entry::Piece(bytes) => Some(bytes.clone()),
        Entry::Response(_) | Entry::Varies(_) => None,
    }
}

impl http_body::Body for CachedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        while let Some(segment) = this.segments.front_mut() {
            let part = match segment {
                Segment::Text(text) => {
                    let text = mem::take(text);
                    this.segments.pop_front();
                    return Poll::Ready(Some(Ok(Frame::data(text))));
                }
                Segment::Content(part) if part.is_empty() => {
                    this.segments.pop_front();
                    continue;
                }
                Segment::Content(part) => part,
            };
            match ready!(this.source.poll_part(cx, part)) {
                Ok(Some(bytes)) => {
                    part.start += bytes.len() as u64;
                    if part.is_empty() {
                        this.segments.pop_front();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Ok(None) => {
                    this.segments.pop_front();
                }
                Err(error) => {
                    if let ContentSource::Pieces(pieces) = &this.source {
                        pieces.parts.count_cut();
                    }
                    this.segments.clear();
                    return Poll::Ready(Some(Err(error.into())));
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.segments.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let lens = self.segments.iter().map(|segment| match segment {
            Segment::Text(text) => Some(text.len() as u64),
            Segment::Content(part) => (part.end != u64::MAX).then(|| part.end - part.start),
        });
        lens.sum::<Option<u64>>().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
