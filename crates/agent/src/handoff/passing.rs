//! A connection on its way to a successor of this process, and its form.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use watari_record::{Connection, Fenced};
use watari_stream::Parts;
use watari_values::{Epoch, SecretBytes};
use watari_wire::{Ship, ShipInResponse};

use super::live::{About, FencedBytes, Live, import};
use super::registry::Undecided;
use super::source::ShippedResponse;
use crate::leg::{Leg, LegTable};

/// A connection that stands still until the successor has it. Its leg is the only socket.
pub struct Passing {
    state: SecretBytes,
    leg: OwnedFd,
    taken: oneshot::Sender<()>,
    _undecided: Option<Undecided>,
}

impl Passing {
    /// The state for [`Agent::restore`](crate::Agent::restore).
    pub fn state(&self) -> &SecretBytes {
        &self.state
    }

    /// The sockets, at most [`SOCKETS_MAX`].
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.leg.as_fd()].into_iter()
    }

    /// The successor has the connection. This process gives it up. Without this call, it goes on with it.
    pub fn taken(self) {
        // The task may have been dropped at the end of the process.
        let _ = self.taken.send(());
    }
}

/// The most sockets of one connection.
pub const SOCKETS_MAX: usize = 1;

/// The way to a successor, while there is one.
#[derive(Default)]
pub(crate) struct ToSuccessor(Mutex<Option<mpsc::Sender<Passing>>>);

impl ToSuccessor {
    pub(crate) fn set(&self, to: Option<mpsc::Sender<Passing>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    pub(crate) fn is_set(&self) -> bool {
        self.get().is_some()
    }

    fn get(&self) -> Option<mpsc::Sender<Passing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes a connection on, within `response` if there is one. Returns it if the successor has not taken it.
    pub(crate) async fn pass_on(
        &self,
        mut live: Box<Live>,
        response: Option<ShippedResponse>,
        undecided: Option<Undecided>,
    ) -> Option<Box<Live>> {
        let Some(to) = self.get() else { return Some(live) };
        let Some(leg) = live.parts.io.pass() else { return Some(live) };
        let Live { about, parts } = *live;
        let standing = Standing::new(about, parts);
        let Ok(state) = standing.encode(response) else { return Some(standing.go_on()) };
        let (taken, confirmed) = oneshot::channel();
        let sent = to.send(Passing { state, leg, taken, _undecided: undecided }).await;
        if sent.is_ok() && confirmed.await.is_ok() { None } else { Some(standing.go_on()) }
    }
}

/// A fenced connection: nothing is opened, sealed, read or written.
struct Standing {
    about: About,
    fenced: Fenced,
    leg: Leg,
    opened: Vec<u8>,
    unopened: Vec<u8>,
    unsent: Vec<u8>,
    received: u64,
    sent: u64,
}

impl Standing {
    fn new(about: About, parts: Parts<Leg>) -> Self {
        let Parts { io, connection, opened, unopened, unsent, received, sent } = parts;
        Self { about, fenced: connection.fence(), leg: io, opened, unopened, unsent, received, sent }
    }

    fn go_on(self) -> Box<Live> {
        let Self { about, fenced, leg, opened, unopened, unsent, received, sent } = self;
        leg.stays();
        let parts = Parts { io: leg, connection: fenced.thaw(), opened, unopened, unsent, received, sent };
        Box::new(Live { about, parts })
    }

    fn encode(&self, response: Option<ShippedResponse>) -> Result<SecretBytes, postcard::Error> {
        let Self { about, fenced, opened, unopened, unsent, received, sent, .. } = self;
        let bytes = FencedBytes { opened, unopened, unsent, received: *received, sent: *sent };
        let ship = about.ship(about.tenure, fenced, bytes);
        let shipped = match response {
            Some(response) => Shipped::InResponse(Box::new(response.ship_with(ship))),
            None => Shipped::Between(Box::new(ship)),
        };
        encode(&PassedConnection { last: about.last, change: self.leg.last_change(), shipped })
    }
}

/// The form of [`Passing::state`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassedConnection {
    /// The last epoch used. The epoch of `shipped` is that of the tenure, which goes on.
    last: Epoch,
    /// The number of the last change of its dispatcher.
    change: u32,
    pub(crate) shipped: Shipped,
}

/// The connection as it would move to another agent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shipped {
    Between(Box<Ship>),
    InResponse(Box<ShipInResponse>),
}

/// The successor cannot go on with a connection, or with the state of its predecessor.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The state is of another form, or has other sockets.
    #[error("the state of a connection has an unknown form")]
    Form,
    /// The response was not prepared.
    #[error("a response cannot be continued: {0}")]
    Response(String),
}

/// A connection of the predecessor, without its leg.
pub(crate) struct Passed {
    about: About,
    connection: Connection,
    ship: Ship,
    change: u32,
}

impl PassedConnection {
    pub(crate) fn decode(state: &[u8]) -> Result<Self, RestoreError> {
        postcard::from_bytes(state).map_err(|_| RestoreError::Form)
    }

    pub(crate) fn into_passed(self) -> Result<Passed, RestoreError> {
        let Self { last, change, shipped } = self;
        let ship = match shipped {
            Shipped::Between(ship) => *ship,
            Shipped::InResponse(shipped) => shipped.ship,
        };
        let connection = import(&ship).map_err(|_| RestoreError::Form)?;
        Ok(Passed { about: About::of_shipped(&ship, last, ship.moves), connection, ship, change })
    }
}

impl Passed {
    /// The connection on its leg.
    pub(crate) fn on(self, leg: TcpStream, table: &Arc<LegTable>) -> Box<Live> {
        let Self { about, connection, ship, change } = self;
        let parts = Parts {
            io: Leg::new(leg, about.carried(change, ship.rx_offset, ship.tail_offset), table),
            connection,
            opened: ship.opened.as_slice().to_vec(),
            unopened: ship.rest.as_slice().to_vec(),
            unsent: ship.tail,
            received: ship.rx_offset,
            sent: ship.tail_offset,
        };
        Box::new(Live { about, parts })
    }
}

/// Encodes secrets. The memory is allocated once: growing would leave copies of them behind.
pub(crate) fn encode(value: &impl Serialize) -> Result<SecretBytes, postcard::Error> {
    let len = postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default())?;
    postcard::to_extend(value, Vec::with_capacity(len)).map(SecretBytes::new)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;
    use watari_record::Side;
    use watari_stream::TlsStream;
    use watari_values::DispatcherChange;
    use watari_wire::{DetachLeg, ResponseRest};

    use super::*;
    use crate::handoff::testing::{ID, leg, leg_in, live, name, record_layer};

    fn response() -> ShippedResponse {
        let bytes = |text: &[u8]| SecretBytes::new(text.to_vec());
        ShippedResponse {
            number: 3,
            http: b"http".to_vec(),
            unwritten: bytes(b"framed"),
            pending: bytes(b"content"),
            rest: ResponseRest::Prepared { skip: 7 },
        }
    }

    #[tokio::test]
    async fn a_connection_goes_on_in_the_process_that_has_it() {
        for is_taken in [true, false] {
            let (to, mut passing) = mpsc::channel(1);
            let successor = Arc::new(ToSuccessor::default());
            successor.set(Some(to));
            let (leg, mut end) = leg().await;
            let mut live = live(leg);
            (live.parts.opened, live.parts.unopened, live.parts.unsent) = (Vec::new(), Vec::new(), Vec::new());
            live.about.last = Epoch(4);
            let undecided = Undecided::default();
            let held = undecided.clone();
            let task = tokio::spawn(async move { successor.pass_on(live, None, Some(held)).await });
            let passing = passing.recv().await.unwrap();
            assert!(!undecided.is_decided());
            let there = PassedConnection::decode(passing.state().as_slice()).unwrap().into_passed().unwrap();
            let copy = passing.sockets().next().unwrap().try_clone_to_owned().unwrap();
            let here = if is_taken {
                passing.taken();
                assert!(task.await.unwrap().is_none());
                let leg = TcpStream::from_std(copy.into()).unwrap();
                there.on(leg, &Arc::default())
            } else {
                drop(passing);
                task.await.unwrap().unwrap()
            };
            assert!(undecided.is_decided());
            assert_eq!((here.about.tenure, here.about.last, here.about.moves), (Epoch(0), Epoch(4), 0));
            assert_eq!((here.parts.received, here.parts.sent), (10, 20));
            let mut stream = TlsStream::from_parts(here.parts);
            stream.write_all(b"to the client").await.unwrap();
            stream.flush().await.unwrap();
            let mut client = Parts::new(&mut end, record_layer(Side::Client));
            client.sent = 0;
            let mut read = [0; 13];
            TlsStream::from_parts(client).read_exact(&mut read).await.unwrap();
            assert_eq!(&read, b"to the client");
        }
    }

    #[tokio::test]
    async fn without_a_successor_a_connection_goes_on_here() {
        let (leg, _end) = leg().await;
        let live = ToSuccessor::default().pass_on(live(leg), None, None).await.unwrap();
        assert_eq!((live.parts.opened.as_slice(), live.parts.unsent.as_slice()), (&b"opened"[..], &b"tail"[..]));
    }

    #[tokio::test]
    async fn a_connection_in_a_change_of_its_dispatcher_stays() {
        let (to, mut passing) = mpsc::channel(1);
        let successor = ToSuccessor::default();
        successor.set(Some(to));
        let table = Arc::default();
        let (leg, _end) = leg_in(&table).await;
        let (d, change) = (name("d"), DispatcherChange { connection: ID, number: 1 });
        let detach = DetachLeg { change, to: name("e") };
        table.on_detach(&d, &detach, Instant::now()).unwrap();
        let live = successor.pass_on(live(leg), None, None).await.unwrap();
        assert!(passing.try_recv().is_err());
        table.on_attach(&d, change);
        let passes = tokio::spawn(async move { successor.pass_on(live, None, None).await });
        let passing = passing.recv().await.unwrap();
        let detach = DetachLeg { change: DispatcherChange { number: 2, ..change }, ..detach };
        assert_eq!(table.on_detach(&d, &detach, Instant::now()), None, "the successor may have it");
        let there = PassedConnection::decode(passing.state().as_slice()).unwrap();
        assert_eq!(there.change, 1, "the number is used there, too");
        drop(passing);
        let _live = passes.await.unwrap().unwrap();
        assert!(table.on_detach(&d, &detach, Instant::now()).is_some());
    }

    #[tokio::test]
    async fn a_state_comes_back_and_a_damaged_one_is_refused() {
        let (leg, _end) = leg().await;
        let Live { about, parts } = *live(leg);
        let standing = Standing::new(about, parts);
        for response in [None, Some(response())] {
            let is_in_response = response.is_some();
            let state = standing.encode(response).unwrap();
            let bytes = state.as_slice();
            let passed = PassedConnection::decode(bytes).unwrap();
            assert_eq!(encode(&passed).unwrap(), state);
            assert_eq!(matches!(&passed.shipped, Shipped::InResponse(_)), is_in_response);
            for at in 0..bytes.len() {
                for change in [1, 0x80, 0xff] {
                    let mut damaged = bytes.to_vec();
                    damaged[at] ^= change;
                    // Refused or not, it does no harm.
                    let _ = PassedConnection::decode(&damaged).and_then(PassedConnection::into_passed);
                }
                assert!(PassedConnection::decode(&bytes[..at]).is_err());
            }
        }
    }

    #[tokio::test]
    async fn an_impossible_state_is_refused() {
        let (leg, _end) = leg().await;
        let Live { about, parts } = *live(leg);
        let state = |standing: &Standing| PassedConnection::decode(standing.encode(None).unwrap().as_slice()).unwrap();
        let mut standing = Standing::new(about, parts);
        standing.received = 3;
        assert!(state(&standing).into_passed().is_err(), "more bytes than the stream has");
        standing.received = 10;
        assert!(state(&standing).into_passed().is_ok());
        standing.fenced = record_layer(Side::Client).fence();
        assert!(state(&standing).into_passed().is_err(), "a client");
    }
}
