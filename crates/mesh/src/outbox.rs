//! The queue of messages to send on a link.

use std::mem;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};
use watari_wire::frame::{self, FRAME_LEN_MAX};
use watari_wire::{LinkMessage, Message};
use zeroize::{Zeroize, Zeroizing};

use crate::config::Limits;
use crate::event::SendError;

/// The longest wait of a message that is sent with [`Outbox::push_soon`]. A message waits only if the one before it came
/// less than this time ago: then another one probably follows.
const SOON: Duration = Duration::from_millis(4);

/// The usual capacity of a batch, and the length of a short queue, in bytes.
const LEN_USUAL: usize = 64 << 10;

/// A bounded queue of frames. The sending task encodes them, and all are written as one batch.
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    /// Notified when the queue becomes due, or due earlier.
    due_changed: Notify,
    /// Notified when the queue is taken.
    taken: Notify,
    messages_max: usize,
    bytes_max: usize,
}

#[derive(Default)]
struct Queue {
    batch: Batch,
    messages: usize,
    due: Due,
    /// When a message was last sent with [`Outbox::push_soon`].
    last_soon: Option<Instant>,
}

/// The time at which the queue has to be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Due {
    /// The queue is empty.
    #[default]
    Never,
    /// All messages in the queue can wait until then.
    At(Instant),
    Now,
}

/// Frames without gaps between them. They may contain secrets.
#[derive(Default)]
pub(crate) struct Batch(Zeroizing<Vec<u8>>);

impl Outbox {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            queue: Mutex::default(),
            due_changed: Notify::new(),
            taken: Notify::new(),
            messages_max: limits.queue_messages_max,
            bytes_max: limits.queue_bytes_max,
        }
    }

    /// Appends a message, unless the queue is full. The queue is written at once.
    pub(crate) fn push(&self, message: &Message) -> Result<(), SendError> {
        self.append(message, 1)?;
        self.due(Due::Now);
        Ok(())
    }

    /// Appends a message, unless the queue is full. Of many such messages, those of [`SOON`] are written together, or with
    /// the next one that is pushed. A single one is written at once: to wake this thread and the peer again later would
    /// cost more.
    pub(crate) fn push_soon(&self, message: &Message) -> Result<(), SendError> {
        self.append(message, 1)?;
        let now = Instant::now();
        let before = self.queue().last_soon.replace(now);
        let others_follow = before.is_some_and(|before| now.duration_since(before) < SOON);
        self.due(if others_follow { Due::At(now + SOON) } else { Due::Now });
        Ok(())
    }

    /// Appends a message, unless the queue is half full. The queue is written at once.
    pub(crate) fn push_bulk(&self, message: &Message) -> Result<(), SendError> {
        self.append(message, 2)?;
        self.due(Due::Now);
        Ok(())
    }

    /// Whether little waits. What is being written does not count.
    pub(crate) fn is_short(&self) -> bool {
        let queue = self.queue();
        queue.batch.0.len() <= LEN_USUAL && queue.messages < self.messages_max / 2
    }

    /// Waits until [`Outbox::is_short`].
    pub(crate) async fn until_short(&self) {
        loop {
            let mut taken = pin!(self.taken.notified());
            taken.as_mut().enable();
            if self.is_short() {
                return;
            }
            taken.await;
        }
    }

    /// Appends a message to this part of the queue.
    fn append(&self, message: &Message, part: usize) -> Result<(), SendError> {
        message.check_bounds()?;
        let len = frame::encoded_len(message);
        let mut queue = self.queue();
        if queue.messages >= self.messages_max / part || queue.batch.0.len() + len > self.bytes_max / part {
            return Err(SendError::QueueFull);
        }
        queue.batch.reserve(len);
        frame::encode(message, &mut queue.batch.0)?;
        queue.messages += 1;
        Ok(())
    }

    /// Appends a message about the link, even if the queue is full. Such messages are rare. Evictions have to precede
    /// all else. A peer that takes nothing is given up within seconds.
    pub(crate) fn push_link(&self, message: &LinkMessage) {
        let mut bytes = Vec::new();
        frame::encode_link(message, &mut bytes);
        let mut queue = self.queue();
        queue.batch.reserve(bytes.len());
        queue.batch.0.extend_from_slice(&bytes);
        drop(queue);
        self.due(Due::Now);
    }

    /// Swaps the queue for `batch`, which was written. Returns `false` if the queue was empty.
    pub(crate) fn take(&self, batch: &mut Batch) -> bool {
        batch.clear();
        let mut queue = self.queue();
        mem::swap(&mut queue.batch, batch);
        queue.messages = 0;
        queue.due = Due::Never;
        drop(queue);
        self.taken.notify_waiters();
        !batch.0.is_empty()
    }

    /// Waits until the queue has to be written.
    pub(crate) async fn wait_until_due(&self) {
        loop {
            let due = self.queue().due;
            match due {
                Due::Now => return,
                Due::Never => self.due_changed.notified().await,
                Due::At(instant) => tokio::select! {
                    () = self.due_changed.notified() => {}
                    () = sleep_until(instant) => return,
                },
            }
        }
    }

    /// Makes the queue due at `then`, unless it is due earlier.
    fn due(&self, then: Due) {
        let mut queue = self.queue();
        let is_earlier = match (queue.due, then) {
            (Due::Never, _) | (Due::At(_), Due::Now) => true,
            (Due::At(_) | Due::Now, _) => false,
        };
        if is_earlier {
            queue.due = then;
            drop(queue);
            self.due_changed.notify_one();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Makes room for `len` more bytes. A vector that grew by itself would leave its old content in freed memory.
    fn reserve(&mut self, len: usize) {
        let needed = self.0.len() + len;
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.next_power_of_two().max(LEN_USUAL)));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
    }

    /// Wipes the content. Frees the memory if it was unusually long.
    fn clear(&mut self) {
        if self.0.capacity() > FRAME_LEN_MAX / 8 {
            *self = Self::default();
        } else {
            self.0.as_mut_slice().zeroize();
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use watari_values::{ConnectionId, Epoch};
    use watari_wire::frame::Frame;
    use watari_wire::{AgentToAgent, DispatcherToAgent, Rest};

    use super::*;

    fn outbox(messages: usize, bytes: usize) -> Outbox {
        Outbox::new(&Limits { queue_messages_max: messages, queue_bytes_max: bytes, ..Limits::default() })
    }

    fn gone(number: u64) -> Message {
        Message::from(DispatcherToAgent::Gone(ConnectionId { boot: 1, number }))
    }

    fn rest(len: usize) -> Message {
        let connection = ConnectionId { boot: 1, number: 1 };
        Message::from(AgentToAgent::Rest(Rest { connection, epoch: Epoch(1), from_offset: 0, bytes: vec![1; len] }))
    }

    fn frames(mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some((frame, len)) = frame::decode(bytes).unwrap() {
            frames.push(frame);
            bytes = &bytes[len..];
        }
        assert!(bytes.is_empty());
        frames
    }

    #[test]
    fn all_that_waits_goes_in_one_batch_and_in_order() {
        let outbox = outbox(100, 1 << 20);
        for number in 0..50 {
            outbox.push(&gone(number)).unwrap();
        }
        outbox.push_link(&LinkMessage::Ping);
        let mut batch = Batch::default();
        assert!(outbox.take(&mut batch));
        let mut expected: Vec<Frame> = (0..50).map(|number| Frame::Message(gone(number))).collect();
        expected.push(Frame::Link(LinkMessage::Ping));
        assert_eq!(frames(batch.as_slice()), expected);
        assert!(!outbox.take(&mut batch));
        outbox.push(&gone(50)).unwrap();
        assert!(outbox.take(&mut batch));
        assert_eq!(frames(batch.as_slice()), [Frame::Message(gone(50))]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_wait_goes_with_what_cannot_or_a_little_later() {
        let outbox = outbox(100, 1 << 20);
        let mut batch = Batch::default();
        let begin = Instant::now();
        outbox.push_soon(&gone(0)).unwrap();
        outbox.wait_until_due().await;
        assert_eq!(begin.elapsed(), Duration::ZERO, "no other message preceded");
        assert!(outbox.take(&mut batch));
        outbox.push_soon(&gone(1)).unwrap();
        outbox.push_soon(&gone(2)).unwrap();
        outbox.wait_until_due().await;
        assert!((SOON..SOON * 2).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        assert!(outbox.take(&mut batch));
        assert_eq!(frames(batch.as_slice()), [1, 2].map(|number| Frame::Message(gone(number))));

        let begin = Instant::now();
        outbox.push_soon(&gone(3)).unwrap();
        let push = async {
            tokio::task::yield_now().await;
            outbox.push(&gone(4)).unwrap();
        };
        tokio::join!(outbox.wait_until_due(), push);
        assert_eq!(begin.elapsed(), Duration::ZERO);
        outbox.push_soon(&gone(5)).unwrap();
        outbox.wait_until_due().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert!(outbox.take(&mut batch));
        assert_eq!(frames(batch.as_slice()), [3, 4, 5].map(|number| Frame::Message(gone(number))));

        tokio::time::advance(SOON).await;
        let begin = Instant::now();
        outbox.push_soon(&gone(6)).unwrap();
        outbox.wait_until_due().await;
        assert_eq!(begin.elapsed(), Duration::ZERO, "the last message was long ago");
        assert!(outbox.take(&mut batch));

        let nothing = tokio::time::timeout(Duration::from_secs(1), outbox.wait_until_due());
        assert!(nothing.await.is_err(), "nothing waits");
    }

    #[test]
    fn the_queue_is_bounded_by_count() {
        let outbox = outbox(2, 1 << 20);
        outbox.push(&gone(1)).unwrap();
        outbox.push(&gone(2)).unwrap();
        assert_eq!(outbox.push(&gone(3)), Err(SendError::QueueFull));
        assert!(outbox.take(&mut Batch::default()));
        outbox.push(&gone(3)).unwrap();
    }

    #[test]
    fn the_queue_is_bounded_by_bytes() {
        let (len, more) = (frame::encoded_len(&rest(5000)), frame::encoded_len(&gone(1)));
        let outbox = outbox(100, len + more - 1);
        outbox.push(&rest(5000)).unwrap();
        assert_eq!(outbox.push(&gone(1)), Err(SendError::QueueFull));
        let mut batch = Batch::default();
        outbox.take(&mut batch);
        assert_eq!(batch.as_slice().len(), len);
    }

    #[test]
    fn a_message_that_is_too_long_leaves_the_queue_as_it_was() {
        let outbox = outbox(100, 8 << 20);
        let error = outbox.push(&rest(watari_wire::REST_LEN_MAX + 1)).unwrap_err();
        assert!(matches!(error, SendError::BadLength(bad) if bad.field == "bytes"));
        assert!(!outbox.take(&mut Batch::default()));
    }

    #[test]
    fn memory_is_given_back() {
        let outbox = outbox(100, 8 << 20);
        outbox.push(&rest(1 << 20)).unwrap();
        let mut batch = Batch::default();
        outbox.take(&mut batch);
        batch.clear();
        assert_eq!(batch.0.capacity(), 0);
    }
}
