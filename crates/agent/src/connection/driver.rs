//! Drives one connection from its leg's preface to its end.
//!
//! ```text
//!  preface: New                                         preface: Commit
//!       |                                                     |  held until now by `handoff::target`
//!       v              early data                             v
//!  Handshaking ------------------> Early data ---------> Serving ---------> Ended
//!   |   |    \                         |      Finished    |   ^
//!   |   |     `-- done, no bulk agent --+---------------->|   | aborted
//!   |   |                               |          parked |   |
//!   |   |  done, a bulk agent           |                 v   |
//!   |   `-------------------------------+------------->  Fenced ----> left: committed, lost, or in a successor
//!   |                                   |
//!   `------------------- failed --------+----------------------------> Ended
//! ```
//!
//! | state | driven by | ends with |
//! | --- | --- | --- |
//! | handshaking | `handshake` | done, early data, failed, refused |
//! | early data | `early_data`, below `http1` or `http2` | serving, failed |
//! | serving | `serve`, `http1`, `http2` | parked, ended, reset |
//! | parked | | fenced at once: the connection is between two requests, or its target has prepared its response |
//! | fenced | `handoff::source`, or `handoff::passing` to a successor of this process | stays (serving again), left with or without its leg |
//! | ended | `handoff::ending` | the leg is free for another connection, or closed |

use std::sync::Arc;

use tokio::net::TcpStream;
use watari_values::{Epoch, NodeName};
use watari_wire::leg::Preface;

use super::early_data::opening::EarlyConnection;
use super::handshake::{HandshakeOutcome, Handshakes};
use super::http::{HttpStart, Parked};
use super::preparations::Continuation;
use super::serve::{Served, Serving};
use crate::handoff::anchored_stream::AnchoredStream;
use crate::handoff::anchors::Anchors;
use crate::handoff::ending::{Ending, Endings};
use crate::handoff::live::Live;
use crate::handoff::passing::ToSuccessor;
use crate::handoff::registry::{Orders, Registry};
use crate::handoff::source::{Departures, Outcome};
use crate::leg::{Carried, CurrentDispatcher, Leg, LegTable};
use crate::node::peers::Peers;

/// The parts that carry a connection from state to state.
pub(crate) struct Connections {
    pub(crate) peers: Peers,
    pub(crate) handshakes: Arc<Handshakes>,
    pub(crate) serving: Serving,
    pub(crate) registry: Arc<Registry>,
    pub(crate) leg_table: Arc<LegTable>,
    pub(crate) departures: Arc<Departures>,
    pub(crate) endings: Arc<Endings>,
    pub(crate) anchors: Arc<Anchors>,
    pub(crate) to_successor: Arc<ToSuccessor>,
}

/// A connection after its handshake, or after its early data was accepted.
enum ConnectionState {
    /// HTTP runs over it. With early data the handshake is not done yet.
    Serving(HttpStart),
    /// Nothing runs over it, and it has to move.
    Parked(Box<Parked>),
}

impl Connections {
    /// Drives a new connection. It moves to `bulk` after its handshake. `surplus` has the bytes that followed the
    /// preface. Returns the leg if it is free afterwards.
    pub(crate) async fn run_new(
        &self,
        leg: TcpStream,
        dispatcher: NodeName,
        preface: &Preface,
        surplus: Vec<u8>,
        bulk: Option<NodeName>,
    ) -> Option<TcpStream> {
        let bulk = bulk.filter(|target| target != self.peers.name());
        // Short states are boxed, here and in `run`: a future has room for its largest state for as long as it lasts.
        let dispatcher = CurrentDispatcher::new(dispatcher);
        let carried = Carried {
            id: preface.connection,
            tenure: Epoch(0),
            dispatcher: dispatcher.clone(),
            change: 0,
            received: surplus.len() as u64,
            sent: 0,
        };
        let leg = Leg::new(leg, carried, &self.leg_table);
        match Box::pin(self.handshakes.run(leg, dispatcher, preface, surplus)).await {
            HandshakeOutcome::Done(live) => {
                let (_entry, mut orders) = self.registry.enter(&live.about, true);
                // Only now: if the dispatcher changes meanwhile, the next one finds the connection in the registry.
                live.about.announce(&self.peers);
                let state = match bulk {
                    Some(target) => {
                        ConnectionState::Parked(Box::new(Parked { live, target, within: None, undecided: None }))
                    }
                    None => ConnectionState::Serving(HttpStart::Live(live)),
                };
                self.run(state, &mut orders).await
            }
            HandshakeOutcome::EarlyData(accepted) => {
                let (_entry, mut orders) = self.registry.enter(&accepted.about, false);
                let (handshakes, registry) = (self.handshakes.clone(), self.registry.clone());
                let early = Box::new(EarlyConnection::new(*accepted, bulk, handshakes, registry));
                self.run(ConnectionState::Serving(HttpStart::EarlyConnection(early)), &mut orders).await
            }
            HandshakeOutcome::Failed(leg, ending) => {
                // Closes the leg even if the dispatcher would keep it: failed handshakes are rare.
                Box::pin(self.endings.announce(leg, &ending)).await;
                None
            }
            HandshakeOutcome::Refused => None,
        }
    }

    /// Drives a connection that was moved here or came from the predecessor of this process, within `response` if
    /// there is one. Returns the leg if it is free afterwards.
    pub(crate) async fn run_moved(&self, live: Box<Live>, response: Option<Box<Continuation>>) -> Option<TcpStream> {
        let (_entry, mut orders) = self.registry.enter(&live.about, true);
        let start = match response {
            Some(response) => {
                let open = Box::new(response.open(live.about.tenure));
                HttpStart::InResponse(live, open)
            }
            None => HttpStart::Live(live),
        };
        self.run(ConnectionState::Serving(start), &mut orders).await
    }

    async fn run(&self, mut state: ConnectionState, orders: &mut Orders) -> Option<TcpStream> {
        loop {
            state = match state {
                ConnectionState::Serving(start) => match self.serving.serve(start, orders).await {
                    Served::Parked(parked) => ConnectionState::Parked(parked),
                    Served::Ended(leg, ending) => return Box::pin(self.end(leg, &ending, orders)).await,
                    Served::Unfinished(leg, ending) => {
                        // The leg is closed, as after any failed handshake.
                        Box::pin(self.end(leg, &ending, orders)).await;
                        return None;
                    }
                    Served::Reset => return None,
                },
                ConnectionState::Parked(parked) => match Box::pin(self.depart(*parked)).await {
                    Ok(start) => ConnectionState::Serving(start),
                    Err(leg) => return leg,
                },
            };
        }
    }

    /// Announces the end of the connection, which follows no orders any more. Returns the leg if it is free.
    async fn end(&self, leg: Leg, ending: &Ending, orders: &mut Orders) -> Option<TcpStream> {
        self.registry.ends(ending.connection, ending.tenure);
        // An upgrade waits for the answer to an order.
        while orders.try_recv().is_ok() {}
        self.endings.announce(leg, ending).await
    }

    /// Gives the connection away. If it stays, returns it in the state that it was in. Otherwise returns its leg, if that
    /// is free.
    async fn depart(&self, parked: Parked) -> Result<HttpStart, Option<TcpStream>> {
        let Parked { live, target, within, undecided } = parked;
        let (shipped, begun) = within.as_ref().map(|(open, how)| open.ship(*how, &self.anchors)).unzip();
        let begun: Option<AnchoredStream> = begun.flatten();
        if target == *self.peers.name() {
            return match (self.to_successor.pass_on(live, shipped, undecided).await, within) {
                (None, within) => {
                    if let Some((open, _)) = within {
                        open.departs(None);
                    }
                    Err(None)
                }
                (Some(live), within) => {
                    self.registry.may_pass_again(live.about.id);
                    Ok(match within {
                        None => HttpStart::Live(live),
                        Some((open, _)) => HttpStart::InResponse(live, open),
                    })
                }
            };
        }
        let (leg, within) = match (self.departures.depart(live, target, shipped).await, within) {
            (Outcome::Stays(live), None) => return Ok(HttpStart::Live(live)),
            (Outcome::Stays(live), Some((open, _))) => {
                open.stays();
                return Ok(HttpStart::InResponse(live, open));
            }
            (Outcome::Moved(leg), within) => (leg, within),
            // The target may have it all the same, and then need its anchor.
            (Outcome::Lost, within) => (None, within.filter(|_| begun.is_some())),
        };
        if let Some((open, _)) = within {
            open.departs(begun);
        }
        Err(leg)
    }
}

#[cfg(test)]
mod tests;
