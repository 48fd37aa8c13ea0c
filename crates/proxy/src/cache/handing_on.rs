//! Entries that an agent hands on before it ends.
//!
//! If an agent leaves, its keys go to other owners, which have few of its entries. So it sends the entries that it owns to
//! their next owners: those in memory, the short ones first, because they save the most requests. The content of such a
//! request is a sequence of entries ([`Frame`]), each response before the pieces of its content.
//!
//! **Invariants**
//!
//! * An entry that a purge affects is never used after the receiving agent knows the purge. The sending agent has checked
//!   the entries against all purges up to those that it names. If the receiving agent knows others, it takes nothing.
//! * The receiving agent takes a response only if it shares responses of a route with the same settings, and a piece only
//!   if it belongs to a response that it has.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::task::{JoinSet, spawn_blocking, yield_now};
use tokio::time::timeout;
use watari_body::Body;
use watari_cache::{Content, Entry, Key, PIECE_LEN, PurgeId, RequestDirectives, Reuse, Shared, StoredResponse};
use watari_values::NodeName;

use super::owners::{HandedOn, OwnerRequests};
use super::response_cache::ResponseCache;

/// When so many bytes are together, they are sent.
const BATCH_LEN: usize = 1 << 20;
/// Entries with a longer encoded form are not handed on. A piece of content with its head is shorter.
const ENTRY_LEN_MAX: usize = 1 << 20;
/// Responses with longer content are not handed on.
const OBJECT_LEN_MAX: u64 = 1 << 32;
/// A batch with the entry that completes it.
const CONTENT_LEN_MAX: usize = BATCH_LEN + FRAME_LEN + ENTRY_LEN_MAX;
/// How long a request with entries may take to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(10);
/// Entries that are looked at before other tasks have a turn.
const TURN: usize = 64;
const FRAME_LEN: usize = 40;

/// What precedes an encoded entry, in this order. Numbers are big endian.
struct Frame {
    key: Key,
    /// Of a piece, the response that it belongs to. Otherwise `key`.
    response: Key,
    /// The index of a piece, or zero.
    index: u32,
    /// The length of the encoded entry.
    len: u32,
}

impl ResponseCache {
    /// Sends the entries that this agent owns to the agents that own their keys when it has left. Returns how many they
    /// have got.
    pub async fn hand_on(self: &Arc<Self>) -> usize {
        let mut tasks = JoinSet::new();
        let cache = Arc::clone(self);
        // There may be millions of entries.
        let owned = spawn_blocking(move || cache.owned()).await.unwrap_or_default();
        for (agent, keys) in owned {
            let cache = Arc::clone(self);
            tasks.spawn(async move { cache.hand_on_to(&agent, keys).await });
        }
        tasks.join_all().await.into_iter().sum()
    }

    /// The keys of the responses that this agent owns, with the length of the content, by their next owner. The shortest
    /// come first.
    fn owned(&self) -> HashMap<NodeName, Vec<(u64, Key)>> {
        let mut owned: HashMap<_, Vec<_>> = HashMap::new();
        let Some(next_owner) = self.owners().map(OwnerRequests::next_owners) else { return owned };
        let now = SystemTime::now();
        let is_useful = |response: &StoredResponse| {
            let reuse = watari_cache::reuse(&response.terms, &RequestDirectives::default(), now);
            reuse != Reuse::Validate && response.content.len() <= OBJECT_LEN_MAX
        };
        for (key, entry) in self.store().in_memory() {
            let Entry::Response(response) = &*entry else { continue };
            let Some(shared) = response.shared.filter(|_| is_useful(response)) else { continue };
            if let Some(next) = next_owner(&shared.key) {
                owned.entry(next).or_default().push((response.content.len(), key));
            }
        }
        for keys in owned.values_mut() {
            keys.sort_unstable();
        }
        owned
    }

    async fn hand_on_to(&self, agent: &NodeName, keys: Vec<(u64, Key)>) -> usize {
        let Some(owners) = self.owners() else { return 0 };
        let (mut sent, mut count, mut batch) = (0, 0, Vec::new());
        // Before the checks: the entries of a batch are checked against all purges that are named.
        let Some(mut purges) = self.complete_purges() else { return 0 };
        let parts = keys.into_iter().flat_map(|(_, key)| self.with_parts(key));
        for (at, (frame, entry)) in parts.enumerate() {
            if at % TURN == 0 {
                yield_now().await;
            }
            if matches!(&*entry, Entry::Response(response) if self.is_purged(response)) {
                continue;
            }
            count += usize::from(frame.append(&mut batch, &entry));
            if batch.len() < BATCH_LEN {
                continue;
            }
            if !owners.hand_on(agent, &purges, mem::take(&mut batch).into()).await {
                return sent;
            }
            sent += mem::take(&mut count);
            let Some(known) = self.complete_purges() else { return sent };
            purges = known;
        }
        let is_sent = count > 0 && owners.hand_on(agent, &purges, batch.into()).await;
        sent + if is_sent { count } else { 0 }
    }

    /// Of each process, the last purge, if this agent knows all purges up to these.
    fn complete_purges(&self) -> Option<Vec<PurgeId>> {
        let latest = self.latest_purges();
        self.knows_all(&latest).then_some(latest)
    }

    /// A response before all that belongs to it, as far as it is in memory.
    fn with_parts(&self, key: Key) -> impl Iterator<Item = (Frame, Arc<Entry>)> + use<'_> {
        let found = self.store().get_now(&key);
        let (shared, content) = match found.as_deref() {
            Some(Entry::Response(response)) => (response.shared, Some(response.content.clone())),
            _ => (None, None),
        };
        let varies = shared.map(|Shared { key, .. }| key).filter(|primary| *primary != key);
        let varies = varies.and_then(|primary| Some((Frame::whole(primary), self.store().get_now(&primary)?)));
        let (object, pieces) = match content {
            Some(Content::Pieces { object, len }) => (Some(object), len.div_ceil(PIECE_LEN) as u32),
            Some(Content::Inline(_)) | None => (None, 0),
        };
        let pieces = (0..pieces).filter_map(move |index| {
            let piece = Key::piece(object?, u64::from(index));
            Some((Frame { key: piece, response: key, index, len: 0 }, self.store().get_now(&piece)?))
        });
        varies.into_iter().chain(found.map(|found| (Frame::whole(key), found))).chain(pieces)
    }

    /// Stores the entries of another agent that are of these routes and missing here. Returns whether it could.
    pub(crate) async fn take(&self, handed_on: &HandedOn, routes: &[u64], content: Body) -> bool {
        let Ok(_permit) = self.taking.try_acquire() else { return false };
        let now_ms = watari_cache::unix_ms(SystemTime::now());
        let Ok(Some(content)) = timeout(ARRIVAL_MAX, read(content)).await else { return false };
        let known = self.purges();
        let has_checked = |(incarnation, number)| {
            handed_on.purges.iter().any(|last| last.incarnation == incarnation && last.number >= number)
        };
        let are_checked = known.latest().into_iter().all(has_checked);
        let purged = known.sequence();
        drop(known);
        let clock_ms = now_ms.cast_signed().saturating_sub(handed_on.time_ms.cast_signed());
        are_checked && self.store_all(content, purged, clock_ms, routes).is_some()
    }

    /// `purged`: the number of the last purge that the entries were checked against. `clock_ms`: how far this agent's
    /// clock is ahead of the sender's. `None`: the rest is malformed.
    fn store_all(&self, mut content: Bytes, purged: u64, clock_ms: i64, routes: &[u64]) -> Option<()> {
        while content.has_remaining() {
            let (frame, encoded) = Frame::next(&mut content)?;
            let mut entry = Entry::decode(&encoded).ok()?;
            let is_wanted = match &mut entry {
                Entry::Response(response) => {
                    *response.purges.get_mut() = purged;
                    let received_ms = &mut response.terms.received_ms;
                    *received_ms = received_ms.saturating_add_signed(clock_ms);
                    response.content.len() <= OBJECT_LEN_MAX
                        && response.shared.is_some_and(|shared| routes.contains(&shared.route))
                }
                Entry::Varies(_) => true,
                Entry::Piece(_) => self.has_piece(&frame),
            };
            if is_wanted {
                self.store().insert_if_absent(frame.key, Arc::new(entry));
            }
        }
        Some(())
    }

    /// Whether the piece belongs to a stored response.
    fn has_piece(&self, frame: &Frame) -> bool {
        let response = self.store().get_now(&frame.response);
        let Some(Entry::Response(StoredResponse { content: Content::Pieces { object, len }, .. })) =
            response.as_deref()
        else {
            return false;
        };
        let index = u64::from(frame.index);
        index < len.div_ceil(PIECE_LEN) && Key::piece(*object, index) == frame.key
    }
}

impl Frame {
    /// That of an entry that is no piece.
    fn whole(key: Key) -> Self {
        Self { key, response: key, index: 0, len: 0 }
    }

    /// Appends the entry. Returns false if it is too long.
    fn append(&self, batch: &mut Vec<u8>, entry: &Entry) -> bool {
        let start = batch.len();
        batch.extend_from_slice(&self.key.0);
        batch.extend_from_slice(&self.response.0);
        batch.extend_from_slice(&self.index.to_be_bytes());
        batch.extend_from_slice(&self.len.to_be_bytes());
        entry.encode(batch);
        let len = batch.len() - start - FRAME_LEN;
        if len > ENTRY_LEN_MAX {
            batch.truncate(start);
            return false;
        }
        batch[start + FRAME_LEN - 4..start + FRAME_LEN].copy_from_slice(&(len as u32).to_be_bytes());
        true
    }

    /// The next encoded entry. It has memory of its own: it outlives the others. `None`: it is malformed.
    fn next(content: &mut Bytes) -> Option<(Self, Bytes)> {
        if content.remaining() < FRAME_LEN {
            return None;
        }
        let [mut key, mut response] = [[0; 16]; 2];
        content.copy_to_slice(&mut key);
        content.copy_to_slice(&mut response);
        let frame = Self { key: Key(key), response: Key(response), index: content.get_u32(), len: content.get_u32() };
        let len = frame.len as usize;
        if content.remaining() < len {
            return None;
        }
        Some((frame, Bytes::copy_from_slice(&content.split_to(len))))
    }
}

/// The whole content. `None`: it was cut, or is too long.
async fn read(mut body: Body) -> Option<Bytes> {
    let mut content = BytesMut::new();
    while let Some(frame) = body.frame().await {
        content.extend_from_slice(&frame.ok()?.into_data().unwrap_or_default());
        if content.len() > CONTENT_LEN_MAX {
            return None;
        }
    }
    Some(content.freeze())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn piece(len: usize) -> Entry {
        Entry::Piece(vec![7; len].into())
    }

    #[test]
    fn frames_survive() {
        let mut batch = Vec::new();
        let frame = Frame { key: Key([1; 16]), response: Key([2; 16]), index: 3, len: 0 };
        assert!(frame.append(&mut batch, &piece(1000)));
        assert!(!frame.append(&mut batch, &piece(ENTRY_LEN_MAX)), "too long");
        assert!(Frame::whole(Key([4; 16])).append(&mut batch, &piece(0)));
        let mut content = Bytes::from(batch);
        let (first, encoded) = Frame::next(&mut content).unwrap();
        assert_eq!((first.key, first.response, first.index), (Key([1; 16]), Key([2; 16]), 3));
        assert!(matches!(Entry::decode(&encoded).unwrap(), Entry::Piece(bytes) if bytes.len() == 1000));
        let (second, _) = Frame::next(&mut content).unwrap();
        assert_eq!((second.key, second.response, second.index), (Key([4; 16]), Key([4; 16]), 0));
        assert!(content.is_empty() && Frame::next(&mut content).is_none());
    }
}
