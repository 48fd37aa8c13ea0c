//! Entries that an agent hands on before it ends.
//!
//! If an agent leaves, its keys go to other owners, which have few of its entries. So it sends the entries that it owns to
//! their next owners: those in memory, the short ones first, because they save the most requests. The content of such a
//! request is a sequence of entries, each as its key, the length of the rest (4 bytes, big endian), and its encoded form.
//!
//! **Invariant**: an entry that a purge affects is never used after the receiving agent knows the purge. The sending agent
//! has checked the entries against the purges that it names. If the receiving agent knows others, it takes nothing.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;
use tokio::time::timeout;
use watari_body::Body;
use watari_cache::{Content, Entry, Key, PIECE_LEN, PurgeId};
use watari_values::NodeName;

use super::response_cache::ResponseCache;

/// When so many bytes are together, they are sent.
const BATCH_LEN: usize = 1 << 20;
/// Entries with a longer encoded form are not handed on. A piece of content with its head is shorter.
const ENTRY_LEN_MAX: usize = 1 << 20;
/// A batch with the entry that completes it.
const CONTENT_LEN_MAX: usize = BATCH_LEN + FRAME_LEN + ENTRY_LEN_MAX;
/// How long a request with entries may take to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(10);
/// A key and a length.
const FRAME_LEN: usize = 20;

impl ResponseCache {
    /// Sends the entries that this agent owns to the agents that own their keys when it has left. Returns how many they
    /// have taken.
    pub async fn hand_on(self: &Arc<Self>) -> usize {
        let mut tasks = JoinSet::new();
        for (agent, mut keys) in self.owned() {
            keys.sort_unstable();
            let cache = Arc::clone(self);
            tasks.spawn(async move { cache.hand_on_to(&agent, keys).await });
        }
        tasks.join_all().await.into_iter().sum()
    }

    /// The keys of the responses that this agent owns, with the length of the content, by their next owner.
    fn owned(&self) -> HashMap<NodeName, Vec<(u64, Key)>> {
        let mut owned: HashMap<_, Vec<_>> = HashMap::new();
        let Some(owners) = self.owners() else { return owned };
        for (key, entry) in self.store().in_memory() {
            let Entry::Response(response) = &*entry else { continue };
            if let Some(next) = response.shared_key.and_then(|shared| owners.successor(&shared)) {
                owned.entry(next).or_default().push((response.content.len(), key));
            }
        }
        owned
    }

    async fn hand_on_to(&self, agent: &NodeName, keys: Vec<(u64, Key)>) -> usize {
        let Some(owners) = self.owners() else { return 0 };
        let (mut taken, mut count, mut batch) = (0, 0, Vec::new());
        // Before the checks: the entries of a batch are checked against all purges that are named.
        let mut purges = self.latest_purges();
        for (key, entry) in keys.into_iter().flat_map(|(_, key)| self.with_parts(key)) {
            if matches!(&*entry, Entry::Response(response) if self.is_purged(response)) {
                continue;
            }
            count += usize::from(append(&mut batch, key, &entry));
            if batch.len() < BATCH_LEN {
                continue;
            }
            if !owners.hand_on(agent, &purges, mem::take(&mut batch).into()).await {
                return taken;
            }
            taken += mem::take(&mut count);
            purges = self.latest_purges();
        }
        let is_taken = count == 0 || owners.hand_on(agent, &purges, batch.into()).await;
        taken + if is_taken { count } else { 0 }
    }

    /// A response after all that belongs to it, as far as it is in memory.
    fn with_parts(&self, key: Key) -> Vec<(Key, Arc<Entry>)> {
        let stored = |key: Key| self.store().get_now(&key).map(|entry| (key, entry));
        let Some(found) = stored(key) else { return Vec::new() };
        let Entry::Response(response) = &*found.1 else { return Vec::new() };
        let varies = response.shared_key.filter(|primary| *primary != key).and_then(stored);
        let pieces = match response.content {
            Content::Pieces { object, len } => (0..len.div_ceil(PIECE_LEN)).map(|at| Key::piece(object, at)).collect(),
            Content::Inline(_) => Vec::new(),
        };
        varies.into_iter().chain(pieces.into_iter().filter_map(stored)).chain([found.clone()]).collect()
    }

    /// Stores the entries of another agent, which it has checked against `purges`. Returns whether it could.
    pub(crate) async fn take(&self, purges: &[PurgeId], content: Body) -> bool {
        let Ok(Some(content)) = timeout(ARRIVAL_MAX, read(content)).await else { return false };
        let known = self.purges();
        let has_checked =
            |incarnation, number| purges.iter().any(|last| last.incarnation == incarnation && last.number >= number);
        let are_checked = known.latest().into_iter().all(|(incarnation, number)| has_checked(incarnation, number));
        let number = known.sequence();
        drop(known);
        are_checked && self.store_all(content, number).is_some()
    }

    /// `number`: that of the last purge that the entries were checked against. `None`: the rest is malformed.
    fn store_all(&self, mut content: Bytes, number: u64) -> Option<()> {
        while content.has_remaining() {
            let (key, encoded) = next_frame(&mut content)?;
            let entry = Entry::decode(&encoded).ok()?;
            if let Entry::Response(response) = &entry {
                response.purges.store(number, Ordering::Relaxed);
            }
            // An entry of this agent's own may be newer.
            if self.store().get_now(&key).is_none() {
                self.store().insert(key, Arc::new(entry));
            }
        }
        Some(())
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

/// Returns false for an entry that is too long.
fn append(batch: &mut Vec<u8>, key: Key, entry: &Entry) -> bool {
    let start = batch.len();
    batch.extend_from_slice(&key.0);
    batch.extend_from_slice(&[0; 4]);
    entry.encode(batch);
    let len = batch.len() - start - FRAME_LEN;
    if len > ENTRY_LEN_MAX {
        batch.truncate(start);
        return false;
    }
    batch[start + key.0.len()..start + FRAME_LEN].copy_from_slice(&(len as u32).to_be_bytes());
    true
}

/// The next key and encoded entry. The entry has memory of its own: it outlives the others. `None`: it is malformed.
fn next_frame(content: &mut Bytes) -> Option<(Key, Bytes)> {
    if content.remaining() < FRAME_LEN {
        return None;
    }
    let mut key = [0; 16];
    content.copy_to_slice(&mut key);
    let len = content.get_u32() as usize;
    if content.remaining() < len {
        return None;
    }
    Some((Key(key), Bytes::copy_from_slice(&content.split_to(len))))
}
