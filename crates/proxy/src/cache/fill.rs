//! Content on its way from an origin into the store, and to the clients that read it meanwhile.
//!
//! ```text
//!   origin --> chunks --> pieces --> store
//!                |                     |
//!                '--> readers <--------'   readers far behind read pieces
//! ```
//!
//! * A fill runs in a task of its own, so it does not end with the client that began it.
//! * It is at most [`AHEAD_MAX`] ahead of its fastest reader, or of its slowest one from where on it is not stored. Without
//!   readers it goes on only if little is left.
//! * Chunks are dropped when they are in the store and [`WINDOW_LEN`] behind. A fill of content that cannot be requested
//!   again by range drops none while it lasts: a slow reader could not get them from elsewhere.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::Notify;
use watari_body::Body;
use watari_cache::{Entry, Key, ObjectId, PIECE_LEN};
use watari_cache_store::Store;

/// How far a fill may be ahead of its fastest reader, in bytes.
const AHEAD_MAX: u64 = 4 << 20;
/// The most bytes that a reader gets before all others had a turn: about a TLS record.
const FIRST_TURN_LEN: usize = 16 << 10;
/// Chunks that are kept for readers although they are in the store, in bytes.
const WINDOW_LEN: u64 = 1 << 20;
/// How much may be left of a fill that goes on without readers, in bytes.
const REST_MAX: u64 = 1 << 20;

/// Bytes of an object from one response of an origin.
#[derive(Debug)]
pub(super) struct Fill {
    object: ObjectId,
    /// The offset of its first byte.
    start: u64,
    /// The offset of its end. `None`: unknown.
    end: Option<u64>,
    settings: FillSettings,
    progress: Mutex<Progress>,
    /// A reader has taken bytes, or has left.
    taken: Notify,
}

#[derive(Debug)]
struct Progress {
    /// The bytes from `kept_from` to `received`, each chunk with its offset.
    chunks: VecDeque<(u64, Bytes)>,
    kept_from: u64,
    received: u64,
    /// All before this offset, from `start` on, is in the store.
    stored: u64,
    /// The furthest offset that a reader has reached.
    taken: u64,
    /// The offset that each reader has reached, by its number.
    readers: HashMap<u64, u64>,
    /// The number of the next reader.
    next_reader: u64,
    waiting: Vec<Waker>,
    ending: Option<FillEnding>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FillSettings {
    /// Whether its end is that of the object.
    pub(super) is_to_end: bool,
    /// Whether other parts of the object can be requested from the origin.
    pub(super) is_resumable: bool,
    /// The offset from which on its bytes are no longer stored.
    pub(super) stored_max: u64,
}

/// How a fill has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FillEnding {
    Complete,
    /// The origin has cut it, or no client reads it.
    Cut,
}

/// The result of a read at an offset.
#[derive(Debug)]
pub(super) enum Read {
    /// The bytes from the offset on that one chunk has.
    Bytes(Bytes),
    /// The fill no longer has them, or never had.
    Elsewhere,
    /// The fill is complete, and has no more bytes.
    End,
    /// The fill was cut before this offset.
    Cut,
}

/// A reader of a fill. Dropping it ends its part.
#[derive(Debug)]
pub(super) struct Reader {
    fill: Arc<Fill>,
    number: u64,
    turn: Turn,
}

/// The first turn of a reader is short, so that the last reader of a crowd waits for little more than for the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    /// It has bytes left that it may not read yet.
    Over,
    Later,
}

/// What a fill ends with.
pub(super) struct Filled {
    pub(super) ending: FillEnding,
    /// The offset after its last byte.
    pub(super) end: u64,
    /// Whether all of its bytes were given to the store.
    pub(super) is_stored: bool,
}

impl Fill {
    /// A fill from `start` on. It has one reader already.
    pub(super) fn new(object: ObjectId, start: u64, end: Option<u64>, settings: FillSettings) -> (Arc<Self>, Reader) {
        let progress = Progress {
            chunks: VecDeque::new(),
            kept_from: start,
            received: start,
            stored: start,
            taken: start,
            readers: HashMap::from([(0, start)]),
            next_reader: 1,
            waiting: Vec::new(),
            ending: None,
        };
        let progress = Mutex::new(progress);
        let fill = Arc::new(Self { object, start, end, settings, progress, taken: Notify::new() });
        (Arc::clone(&fill), Reader { fill, number: 0, turn: Turn::First })
    }

    pub(super) fn object(&self) -> ObjectId {
        self.object
    }

    /// A reader that begins at `offset`, if the fill will soon have the bytes there.
    pub(super) fn join(self: &Arc<Self>, offset: u64) -> Option<Reader> {
        let mut progress = self.progress();
        let is_near = offset >= progress.kept_from && offset <= progress.received + AHEAD_MAX;
        let is_within = self.end.is_none_or(|end| offset < end);
        if !is_near || !is_within || progress.ending == Some(FillEnding::Cut) {
            return None;
        }
        Some(self.reader(&mut progress, offset))
    }

    fn reader(self: &Arc<Self>, progress: &mut Progress, offset: u64) -> Reader {
        let number = progress.next_reader;
        progress.next_reader += 1;
        progress.readers.insert(number, offset);
        Reader { fill: Arc::clone(self), number, turn: Turn::First }
    }

    /// A reader of bytes that the store has: while it reads them, the fill goes on.
    pub(super) fn watch(self: &Arc<Self>) -> Option<Reader> {
        let mut progress = self.progress();
        if progress.ending.is_some() {
            return None;
        }
        let taken = progress.taken;
        Some(self.reader(&mut progress, taken))
    }

    /// The origin does not have the bytes.
    pub(super) fn refuse(&self) {
        self.end(FillEnding::Cut);
    }

    /// Reads the origin's body to its end, into the store and for the readers. `first` is the content that has arrived
    /// already. Without a body, nothing follows it.
    pub(super) async fn run(self: Arc<Self>, first: Bytes, body: Option<Body>, store: Store) -> Filled {
        let mut cut_off = CutOff(&self, true);
        let filled = self.receive(first, body, &store).await;
        cut_off.1 = false;
        self.end(filled.ending);
        filled
    }

    async fn receive(&self, first: Bytes, mut body: Option<Body>, store: &Store) -> Filled {
        let mut piece = Assembly::new(self.start);
        let is_too_long = self.push(&first, &mut piece, store).is_err();
        let ending = loop {
            let Some(body) = body.as_mut().filter(|_| !is_too_long) else { break FillEnding::Cut };
            if !self.may_go_on().await {
                break FillEnding::Cut;
            }
            let frame = body.frame().await;
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(chunk))) => {
                    if self.push(&chunk, &mut piece, store).is_err() {
                        break FillEnding::Cut;
                    }
                }
                // Trailers are not stored (RFC 9111, section 3.1).
                Some(Ok(Err(_))) => {}
                Some(Err(_)) => break FillEnding::Cut,
                None => break FillEnding::Complete,
            }
        };
        let mut progress = self.progress();
        let end = progress.received;
        let is_whole = self.end.is_none_or(|expected| expected == end);
        let ending = if is_whole { ending } else { FillEnding::Cut };
        if ending == FillEnding::Complete
            && self.settings.is_to_end
            && self.is_stored(end)
            && let Some((index, bytes)) = piece.last()
        {
            store.insert(Key::piece(self.object, index), Arc::new(Entry::Piece(bytes)));
            progress.stored = end;
        }
        Filled { ending, end, is_stored: progress.stored == end }
    }

    fn is_stored(&self, offset: u64) -> bool {
        offset <= self.settings.stored_max
    }

    /// Waits until a reader is near. Returns whether anything more is wanted.
    async fn may_go_on(&self) -> bool {
        loop {
            let taken = self.taken.notified();
            {
                let progress = self.progress();
                if progress.readers.is_empty() {
                    return match self.end {
                        Some(end) => end - progress.received <= REST_MAX,
                        None => progress.received - self.start < REST_MAX,
                    };
                }
                if progress.received < self.needed(&progress) + AHEAD_MAX {
                    return true;
                }
            }
            taken.await;
        }
    }

    /// Adds a chunk. Fails if the origin sends more than it has announced.
    fn push(&self, chunk: &Bytes, piece: &mut Assembly, store: &Store) -> Result<(), TooLong> {
        if chunk.is_empty() {
            return Ok(());
        }
        let at = self.progress().received;
        let end = at + chunk.len() as u64;
        if self.end.is_some_and(|expected| end > expected) {
            return Err(TooLong);
        }
        // Outside of the lock: it copies.
        let mut stored = None;
        if self.is_stored(end) {
            piece.add(chunk, |index, bytes| {
                stored = Some((index + 1) * PIECE_LEN);
                store.insert(Key::piece(self.object, index), Arc::new(Entry::Piece(bytes)));
            });
        }
        let mut progress = self.progress();
        progress.chunks.push_back((at, chunk.clone()));
        progress.received = end;
        if let Some(stored) = stored {
            progress.stored = stored;
        }
        self.drop_chunks(&mut progress);
        progress.wake();
        Ok(())
    }

    /// Drops chunks that readers can get from the store. Those that are not stored are dropped when all readers have them.
    fn drop_chunks(&self, progress: &mut Progress) {
        let keeps_all = !self.settings.is_resumable && self.is_stored(progress.received);
        if keeps_all {
            return;
        }
        let stored = if self.is_stored(progress.received) { progress.stored } else { progress.received };
        let until = stored.min(self.needed(progress)).min(progress.received.saturating_sub(WINDOW_LEN));
        while let Some((_, chunk)) = progress.chunks.front()
            && progress.kept_from + chunk.len() as u64 <= until
        {
            progress.kept_from += chunk.len() as u64;
            progress.chunks.pop_front();
        }
    }

    /// The offset from which on readers need chunks: the fastest one, or the slowest one if the store does not get them.
    fn needed(&self, progress: &Progress) -> u64 {
        if self.is_stored(progress.received) {
            progress.taken
        } else {
            progress.readers.values().min().copied().unwrap_or(progress.received)
        }
    }

    fn end(&self, ending: FillEnding) {
        let mut progress = self.progress();
        progress.ending = Some(ending);
        progress.wake();
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The origin sends more than it has announced.
struct TooLong;

/// Ends the fill if its task is dropped.
struct CutOff<'a>(&'a Fill, bool);

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.end(FillEnding::Cut);
        }
    }
}

impl Progress {
    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// The bytes from `offset` on, of the chunk that has them.
    fn chunk(&self, offset: u64) -> Option<Bytes> {
        let after = self.chunks.partition_point(|(begin, _)| *begin <= offset);
        let (begin, chunk) = self.chunks.get(after.checked_sub(1)?)?;
        let within = usize::try_from(offset - begin).ok().filter(|within| *within < chunk.len())?;
        Some(chunk.slice(within..))
    }
}

impl Reader {
    /// Reads the next bytes at `offset`. Pending: they have not arrived.
    pub(super) fn poll_read(&mut self, cx: &Context<'_>, offset: u64) -> Poll<Read> {
        if self.turn == Turn::Over {
            self.turn = Turn::Later;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let fill = &*self.fill;
        let mut progress = fill.progress();
        if offset < progress.kept_from {
            return Poll::Ready(Read::Elsewhere);
        }
        let mut bytes = progress.chunk(offset);
        if self.turn == Turn::First
            && let Some(bytes) = &mut bytes
        {
            self.turn = if bytes.len() > FIRST_TURN_LEN { Turn::Over } else { Turn::Later };
            bytes.truncate(FIRST_TURN_LEN);
        }
        // Also without bytes: the reader may have got all before `offset` from the store.
        let reached = offset + bytes.as_ref().map_or(0, Bytes::len) as u64;
        let before = progress.readers.insert(self.number, reached);
        progress.taken = progress.taken.max(reached);
        if before != Some(reached) {
            fill.taken.notify_one();
        }
        if let Some(bytes) = bytes {
            return Poll::Ready(Read::Bytes(bytes));
        }
        match progress.ending {
            Some(FillEnding::Complete) if offset == progress.received => Poll::Ready(Read::End),
            Some(FillEnding::Complete) => Poll::Ready(Read::Elsewhere),
            Some(FillEnding::Cut) => Poll::Ready(Read::Cut),
            None => {
                if !progress.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    progress.waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.fill.progress().readers.remove(&self.number);
        self.fill.taken.notify_one();
    }
}

/// A piece that is being put together.
struct Assembly {
    /// The offset of the next byte.
    next: u64,
    bytes: BytesMut,
    /// Whether its first byte has arrived. A fill may begin within a piece.
    has_begun: bool,
}

impl Assembly {
    fn new(start: u64) -> Self {
        Self { next: start, bytes: BytesMut::new(), has_begun: start.is_multiple_of(PIECE_LEN) }
    }

    /// Adds bytes, and calls `complete` with each piece that is complete, and its index.
    fn add(&mut self, chunk: &Bytes, mut complete: impl FnMut(u64, Bytes)) {
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            let left = (PIECE_LEN - self.next % PIECE_LEN) as usize;
            let (now, later) = rest.split_at(rest.len().min(left));
            rest = later;
            if self.has_begun {
                self.bytes.extend_from_slice(now);
            }
            self.next += now.len() as u64;
            if now.len() == left {
                if self.has_begun {
                    complete(self.next / PIECE_LEN - 1, self.bytes.split().freeze());
                }
                self.has_begun = true;
            }
        }
    }

    /// The last piece, which is shorter, with its index.
    fn last(self) -> Option<(u64, Bytes)> {
        (self.has_begun && !self.bytes.is_empty()).then(|| (self.next / PIECE_LEN, self.bytes.freeze()))
    }
}
