//! Announces the end of a connection to its dispatcher, which may keep the leg for another connection.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use watari_values::{ConnectionId, Epoch, NodeName};
use watari_wire::{AgentToDispatcher, Final, LegKept};

use crate::leg::{CurrentDispatcher, Leg};
use crate::node::peers::Peers;
use crate::settings::current::CurrentSettings;

/// Size of the buffer for discarded client bytes.
const DISCARD_LEN: usize = 4096;

/// The most client bytes that are read and discarded: what a client may have in flight when it learns of the end. If
/// the dispatcher relays more, its leg is reset.
const DISCARDED_LEN_MAX: u64 = 64 << 20;

/// The end of a connection.
pub(crate) struct Ending {
    pub(crate) connection: ConnectionId,
    pub(crate) dispatcher: CurrentDispatcher,
    pub(crate) tenure: Epoch,
    /// Length of the stream to the client, in bytes.
    pub(crate) sent: u64,
    /// Bytes of the client's stream that were read.
    pub(crate) received: u64,
}

/// Announces ends, and finds the ending for a dispatcher's [`LegKept`].
pub(crate) struct Endings {
    peers: Peers,
    settings: Arc<CurrentSettings>,
    entries: Mutex<HashMap<ConnectionId, Waiting>>,
}

struct Waiting {
    dispatcher: CurrentDispatcher,
    tenure: Epoch,
    sender: oneshot::Sender<u64>,
}

/// Removes the ending from the table when it is dropped.
struct Entry<'a> {
    table: &'a Endings,
    id: ConnectionId,
    tenure: Epoch,
}

impl Endings {
    pub(crate) fn new(peers: Peers, settings: Arc<CurrentSettings>) -> Self {
        Self { peers, settings, entries: Mutex::default() }
    }

    /// Sends the message to its ending. Returns `false` if there is none. A tenure ends once, so the message cannot be
    /// about a move.
    pub(crate) fn on_leg_kept(&self, from: &NodeName, message: &LegKept) -> bool {
        let mut entries = self.entries();
        let is_for = |waiting: &Waiting| waiting.dispatcher.is(from) && waiting.tenure == message.epoch;
        if !entries.get(&message.connection).is_some_and(is_for) {
            return false;
        }
        if let Some(waiting) = entries.remove(&message.connection) {
            // The leg may have ended in the meantime.
            let _ = waiting.sender.send(message.rx_offset);
        }
        true
    }

    /// Announces the end of the stream to the client, until the dispatcher closes the leg or keeps it. Repeats the
    /// message, because it can be lost with the link. Returns the leg if it is free for another connection: the
    /// dispatcher has reported the cut of the client's stream, and this node has read exactly up to it.
    ///
    /// This node does not shut down the leg before the answer: a FIN would be its last byte on it.
    pub(crate) async fn announce(&self, mut leg: Leg, ending: &Ending) -> Option<TcpStream> {
        // If this process dies now, the bytes it has written must still arrive.
        leg.fin_on_close();
        let (_entry, leg_kept) = self.enter(ending);
        let message = AgentToDispatcher::Final(Final {
            connection: ending.connection,
            epoch: ending.tenure,
            tx_offset: ending.sent,
        });
        self.peers.send(&ending.dispatcher.get(), message.clone());
        let limits = self.settings.limits();
        let expiry = Instant::now() + limits.end_timeout;
        let is_free = {
            let mut until_cut = pin!(until_cut(&mut leg, ending.received, leg_kept));
            loop {
                let again = Instant::now() + limits.retry_interval;
                match timeout_at(again.min(expiry), &mut until_cut).await {
                    Ok(is_free) => break is_free,
                    Err(_) if Instant::now() >= expiry => break false,
                    Err(_) => drop(self.peers.send(&ending.dispatcher.get(), message.clone())),
                }
            }
        };
        if is_free { leg.into_free() } else { None }
    }

    fn enter(&self, ending: &Ending) -> (Entry<'_>, oneshot::Receiver<u64>) {
        let (sender, leg_kept) = oneshot::channel();
        let waiting = Waiting { dispatcher: ending.dispatcher.clone(), tenure: ending.tenure, sender };
        self.entries().insert(ending.connection, waiting);
        (Entry { table: self, id: ending.connection, tenure: ending.tenure }, leg_kept)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ConnectionId, Waiting>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        if entries.get(&self.id).is_some_and(|waiting| waiting.tenure == self.tenure) {
            entries.remove(&self.id);
        }
    }
}

/// Reads and discards the rest of the client's stream after `received` bytes, up to the dispatcher's cut. Returns
/// `false` if the leg ends, if more was read than the dispatcher has written, or after [`DISCARDED_LEN_MAX`] bytes.
async fn until_cut(leg: &mut Leg, mut received: u64, mut leg_kept: oneshot::Receiver<u64>) -> bool {
    let mut cut = None;
    let received_max = received.saturating_add(DISCARDED_LEN_MAX);
    while received <= received_max && cut.is_none_or(|cut| received < cut) {
        tokio::select! {
            offset = &mut leg_kept, if cut.is_none() => match offset {
                Ok(offset) => cut = Some(offset),
                Err(_) => return false,
            },
            read = discard(leg) => match read {
                Ok(read @ 1..) => received += read as u64,
                Ok(0) | Err(_) => return false,
            },
        }
    }
    cut == Some(received)
}

/// Discards one read. A close with unread input would reset the leg and lose the last bytes sent.
async fn discard(leg: &mut Leg) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut buffer = [MaybeUninit::uninit(); DISCARD_LEN];
        let mut buffer = ReadBuf::uninit(&mut buffer);
        ready!(Pin::new(&mut *leg).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    })
    .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;
    use watari_values::DispatcherChange;
    use watari_wire::DetachLeg;

    use super::*;
    use crate::handoff::testing::{ID, Node, leg, leg_in, name, streams};
    use crate::leg::Continued;
    use crate::settings::limits::Limits;

    #[tokio::test]
    async fn a_leg_is_free_once_exactly_so_much_is_read() {
        // Bytes that arrive before the dispatcher announces its cut, bytes after that, the announced position, and
        // whether the leg is free.
        let cases = [(0, 0, 10, true), (7, 0, 17, true), (0, 7, 17, true), (3, 4, 17, true), (5, 0, 14, false)];
        for (before, after, cut, is_free) in cases {
            let (mut leg, mut end) = leg().await;
            let (sender, leg_kept) = oneshot::channel();
            end.write_all(&vec![1; before]).await.unwrap();
            let dispatcher = async {
                sender.send(cut).unwrap();
                end.write_all(&vec![1; after]).await.unwrap();
            };
            let waits = timeout(Duration::from_secs(20), until_cut(&mut leg, 10, leg_kept));
            let (freed, ()) = tokio::join!(waits, dispatcher);
            assert_eq!(freed.unwrap(), is_free, "{before} {after} {cut}");
        }
    }

    #[tokio::test]
    async fn a_leg_that_ends_is_not_free() {
        let (mut leg, end) = leg().await;
        let (_sender, leg_kept) = oneshot::channel();
        drop(end);
        assert!(!timeout(Duration::from_secs(20), until_cut(&mut leg, 10, leg_kept)).await.unwrap());
    }

    #[tokio::test]
    async fn a_client_that_goes_on_sending_is_not_read_for_ever() {
        let (mut leg, mut end) = leg().await;
        let (_sender, leg_kept) = oneshot::channel();
        let sends = async {
            let piece = vec![0; 1 << 20];
            while end.write_all(&piece).await.is_ok() {}
        };
        let is_free = async {
            let is_free = until_cut(&mut leg, 0, leg_kept).await;
            leg.reset_on_close();
            drop(leg);
            is_free
        };
        let (is_free, ()) = timeout(Duration::from_mins(1), async { tokio::join!(is_free, sends) }).await.unwrap();
        assert!(!is_free);
    }

    #[tokio::test]
    async fn an_end_is_announced_to_the_next_dispatcher_too() {
        let node = Node::new(Limits { retry_interval: Duration::from_millis(1), ..Limits::default() });
        let endings = Arc::new(Endings::new(node.peers, node.settings));
        let table = Arc::default();
        let (leg, _end) = leg_in(&table).await;
        let ending = Ending { connection: ID, dispatcher: leg.dispatcher(), tenure: Epoch(0), sent: 20, received: 10 };
        let announces = {
            let endings = endings.clone();
            tokio::spawn(async move { endings.announce(leg, &ending).await })
        };
        let (d, e, change) = (name("d"), name("e"), DispatcherChange { connection: ID, number: 1 });
        table.on_detach(&d, &DetachLeg { change, to: e.clone() }, Instant::now()).unwrap();
        let (stream, mut end) = streams().await;
        let (stream, surplus) = (stream.into_std().unwrap(), Vec::new());
        let leg = Continued { stream, change, tenure: Epoch(0), rx_offset: 10, tx_offset: 20, surplus };
        assert!(table.on_continue(&e, leg).is_ok());
        let kept = LegKept { connection: ID, epoch: Epoch(0), rx_offset: 13 };
        let is_announced = async {
            while !node.links.take().iter().any(|(to, _)| *to == e) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), is_announced).await.unwrap();
        assert!(!endings.on_leg_kept(&d, &kept) && endings.on_leg_kept(&e, &kept));
        end.write_all(b"cut").await.unwrap();
        let free = timeout(Duration::from_secs(20), announces).await.unwrap().unwrap();
        assert_eq!(free.unwrap().peer_addr().unwrap(), end.local_addr().unwrap(), "the next dispatcher's leg is free");
    }

    #[test]
    fn only_the_dispatcher_of_an_ending_decides_about_its_leg() {
        let id = |number| ConnectionId { boot: 1, number };
        let node = Node::new(Limits::default());
        let endings = Endings::new(node.peers, node.settings);
        let ending = Ending {
            connection: id(1),
            dispatcher: CurrentDispatcher::new(name("d1")),
            tenure: Epoch(2),
            sent: 5,
            received: 10,
        };
        let (entry, mut leg_kept) = endings.enter(&ending);
        let kept = |connection, epoch| LegKept { connection, epoch: Epoch(epoch), rx_offset: 12 };
        assert!(!endings.on_leg_kept(&name("d2"), &kept(id(1), 2)));
        assert!(!endings.on_leg_kept(&name("d1"), &kept(id(2), 2)));
        assert!(!endings.on_leg_kept(&name("d1"), &kept(id(1), 1)), "that was a move");
        assert!(leg_kept.try_recv().is_err());
        assert!(endings.on_leg_kept(&name("d1"), &kept(id(1), 2)));
        assert_eq!(leg_kept.try_recv(), Ok(12));
        let (later, _leg_kept) = endings.enter(&Ending { tenure: Epoch(4), ..ending });
        drop(entry);
        assert_eq!(endings.entries().len(), 1, "an ending removes only its own entry");
        drop(later);
        assert!(endings.entries().is_empty());
    }
}
