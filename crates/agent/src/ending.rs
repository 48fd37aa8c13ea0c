//! The end of a connection: announced to its dispatcher, which may keep the leg for another connection.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use watari_sys::tcp;
use watari_wire::{ConnectionId, Epoch, Final, LegKept, Message, NodeName};

use crate::Shared;

/// Buffer for client bytes that are read and dropped, in bytes.
const DISCARD_LEN: usize = 4096;

/// Client bytes that are read and dropped at most, in bytes: what a client may have in flight when it learns of the end. A
/// dispatcher that still relays after that gets its leg reset.
const DISCARDED_LEN_MAX: u64 = 64 << 20;

/// The end of the stream to the client.
pub(crate) struct Ending {
    pub(crate) connection: ConnectionId,
    pub(crate) dispatcher: NodeName,
    pub(crate) tenure: Epoch,
    /// Length of the stream to the client, in bytes.
    pub(crate) sent: u64,
    /// How much of the client's stream was read, in bytes.
    pub(crate) received: u64,
}

/// Endings that wait for their dispatcher's [`LegKept`].
#[derive(Default)]
pub(crate) struct Endings {
    entries: Mutex<HashMap<ConnectionId, Waiting>>,
}

struct Waiting {
    dispatcher: NodeName,
    tenure: Epoch,
    kept: oneshot::Sender<u64>,
}

/// Removes the ending from the table when it is dropped.
struct Entry<'a> {
    table: &'a Endings,
    id: ConnectionId,
    tenure: Epoch,
}

impl Endings {
    /// Passes `told` to its ending; `false` if there is none. A tenure ends once, so this does not decide about a move.
    pub(crate) fn on_leg_kept(&self, from: &NodeName, told: &LegKept) -> bool {
        let mut entries = self.entries();
        let is_for = |waiting: &Waiting| waiting.dispatcher == *from && waiting.tenure == told.epoch;
        if !entries.get(&told.connection).is_some_and(is_for) {
            return false;
        }
        if let Some(waiting) = entries.remove(&told.connection) {
            // The leg may just have ended.
            let _ = waiting.kept.send(told.rx_offset);
        }
        true
    }

    fn enter(&self, ending: &Ending) -> (Entry<'_>, oneshot::Receiver<u64>) {
        let (kept, told) = oneshot::channel();
        let waiting = Waiting { dispatcher: ending.dispatcher.clone(), tenure: ending.tenure, kept };
        self.entries().insert(ending.connection, waiting);
        (Entry { table: self, id: ending.connection, tenure: ending.tenure }, told)
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

/// Announces the end of the stream to the client, until the dispatcher closes the leg or keeps it: the announcement is
/// repeated, because a link may be lost with it. Returns the leg if it is free for another connection: the dispatcher says
/// where it has cut the client's stream, and exactly as much was read.
///
/// The leg is not ended ahead of the answer: a FIN on it would be its last byte.
pub(crate) async fn announce_end(shared: &Shared, leg: TcpStream, ending: &Ending) -> Option<TcpStream> {
    // Should this node die now, what it has written must still arrive.
    tcp::fin_on_close(&leg);
    let (_entry, told) = shared.endings.enter(ending);
    let message = Message::Final(Final { connection: ending.connection, epoch: ending.tenure, tx_offset: ending.sent });
    shared.tell(&ending.dispatcher, &message);
    let limits = shared.limits();
    let expiry = Instant::now() + limits.end_timeout;
    let is_free = {
        let mut until_cut = pin!(until_cut(&leg, ending.received, told));
        loop {
            let again = Instant::now() + limits.retry_interval;
            match timeout_at(again.min(expiry), &mut until_cut).await {
                Ok(is_free) => break is_free,
                Err(_) if Instant::now() >= expiry => break false,
                Err(_) => drop(shared.tell(&ending.dispatcher, &message)),
            }
        }
    };
    is_free.then_some(leg)
}

/// Reads and drops what still comes of the client's stream, of which `received` was read, up to where the dispatcher has cut it.
/// `false`: the leg has ended, more was read than the dispatcher has written, or more than [`DISCARDED_LEN_MAX`] was dropped.
async fn until_cut(leg: &TcpStream, mut received: u64, mut told: oneshot::Receiver<u64>) -> bool {
    let mut cut = None;
    let received_max = received.saturating_add(DISCARDED_LEN_MAX);
    while received <= received_max && cut.is_none_or(|cut| received < cut) {
        tokio::select! {
            kept = &mut told, if cut.is_none() => match kept {
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

/// Closing with unread input would reset the leg, and lose what was sent last.
async fn discard(leg: &TcpStream) -> io::Result<usize> {
    loop {
        leg.readable().await?;
        match tcp::try_read(leg, &mut [0; DISCARD_LEN]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// A leg and its dispatcher's end.
    async fn leg() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (end, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (accepted.unwrap().0, end.unwrap())
    }

    #[tokio::test]
    async fn a_leg_is_free_once_exactly_so_much_is_read() {
        // Bytes that arrive before the dispatcher announces its cut, bytes after that, the announced position, and
        // whether the leg is free.
        let cases = [(0, 0, 10, true), (7, 0, 17, true), (0, 7, 17, true), (3, 4, 17, true), (5, 0, 14, false)];
        for (before, after, cut, is_free) in cases {
            let (leg, mut end) = leg().await;
            let (say, told) = oneshot::channel();
            end.write_all(&vec![1; before]).await.unwrap();
            let dispatcher = async {
                say.send(cut).unwrap();
                end.write_all(&vec![1; after]).await.unwrap();
            };
            let waits = timeout(Duration::from_secs(20), until_cut(&leg, 10, told));
            let (freed, ()) = tokio::join!(waits, dispatcher);
            assert_eq!(freed.unwrap(), is_free, "{before} {after} {cut}");
        }
    }

    #[tokio::test]
    async fn a_leg_that_ends_is_not_free() {
        let (leg, end) = leg().await;
        let (_say, told) = oneshot::channel();
        drop(end);
        assert!(!timeout(Duration::from_secs(20), until_cut(&leg, 10, told)).await.unwrap());
    }

    #[tokio::test]
    async fn a_client_that_goes_on_sending_is_not_read_for_ever() {
        let (leg, mut end) = leg().await;
        let (_say, told) = oneshot::channel();
        let sends = async {
            let piece = vec![0; 1 << 20];
            while end.write_all(&piece).await.is_ok() {}
        };
        let is_free = async {
            let is_free = until_cut(&leg, 0, told).await;
            tcp::reset_on_close(&leg);
            drop(leg);
            is_free
        };
        let (is_free, ()) = timeout(Duration::from_mins(1), async { tokio::join!(is_free, sends) }).await.unwrap();
        assert!(!is_free);
    }

    #[test]
    fn only_the_dispatcher_of_an_ending_decides_about_its_leg() {
        let name = |text: &str| NodeName::new(text).unwrap();
        let id = |number| ConnectionId { boot: 1, number };
        let endings = Endings::default();
        let ending = Ending { connection: id(1), dispatcher: name("d1"), tenure: Epoch(2), sent: 5, received: 10 };
        let (entry, mut told) = endings.enter(&ending);
        let kept = |connection, epoch| LegKept { connection, epoch: Epoch(epoch), rx_offset: 12 };
        assert!(!endings.on_leg_kept(&name("d2"), &kept(id(1), 2)));
        assert!(!endings.on_leg_kept(&name("d1"), &kept(id(2), 2)));
        assert!(!endings.on_leg_kept(&name("d1"), &kept(id(1), 1)), "that was a move");
        assert!(told.try_recv().is_err());
        assert!(endings.on_leg_kept(&name("d1"), &kept(id(1), 2)));
        assert_eq!(told.try_recv(), Ok(12));
        let (later, _told) = endings.enter(&Ending { tenure: Epoch(4), ..ending });
        drop(entry);
        assert_eq!(endings.entries().len(), 1, "an ending removes only its own entry");
        drop(later);
        assert!(endings.entries().is_empty());
    }
}
