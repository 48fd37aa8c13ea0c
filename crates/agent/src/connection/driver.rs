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
//!   |   `-------------------------------+------------->  Fenced ----> left: committed, or lost
//!   |                                   |
//!   `------------------- failed --------+----------------------------> Ended
//! ```
//!
//! | state | driven by | ends with |
//! | --- | --- | --- |
//! | handshaking | `handshake` | done, early data, failed, refused |
//! | early data | `early_data`, below `http1` or `http2` | serving, failed |
//! | serving | `serve`, `http1`, `http2` | parked, ended, reset |
//! | parked | | fenced at once: the connection is between two requests |
//! | fenced | `handoff::source` | stays (serving again), left with or without its leg |
//! | ended | `handoff::ending` | the leg is free for another connection, or closed |

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use watari_values::NodeName;
use watari_wire::Leave;
use watari_wire::leg::Preface;

use super::early_data::opening::EarlyConnection;
use super::handshake::{HandshakeOutcome, Handshakes};
use super::http::HttpStart;
use super::serve::{Served, Serving};
use crate::handoff::ending::Endings;
use crate::handoff::live::Live;
use crate::handoff::registry::Registry;
use crate::handoff::source::{Departures, Outcome};
use crate::node::peers::Peers;

/// The parts that carry a connection from state to state.
pub(crate) struct Connections {
    pub(crate) peers: Peers,
    pub(crate) handshakes: Arc<Handshakes>,
    pub(crate) serving: Serving,
    pub(crate) registry: Arc<Registry>,
    pub(crate) departures: Arc<Departures>,
    pub(crate) endings: Arc<Endings>,
}

/// A connection after its handshake, or after its early data was accepted.
enum ConnectionState {
    /// HTTP runs over it. With early data the handshake is not done yet.
    Serving(HttpStart),
    /// Nothing runs over it. It has to move to this agent.
    Parked(Box<Live>, NodeName),
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
        // Boxed in several places, because a future keeps room for its largest state for as long as the connection
        // lasts.
        match self.handshakes.run(leg, dispatcher, preface, surplus).await {
            HandshakeOutcome::Done(live) => {
                live.about.announce(&self.peers);
                self.run_live(live, bulk).await
            }
            HandshakeOutcome::EarlyData(accepted) => {
                let (_entry, mut leaves) = self.registry.enter(&accepted.about, false);
                let (handshakes, registry) = (self.handshakes.clone(), self.registry.clone());
                let early = Box::new(EarlyConnection::new(*accepted, bulk, handshakes, registry));
                self.run(ConnectionState::Serving(HttpStart::EarlyConnection(early)), &mut leaves).await
            }
            HandshakeOutcome::Failed(leg, ending) => {
                // Closes the leg even if the dispatcher would keep it: failed handshakes are rare.
                self.endings.announce(leg, &ending).await;
                None
            }
            HandshakeOutcome::Refused => None,
        }
    }

    /// Drives a connection that this node owns: gives it to `target`, or serves it. Returns the leg if it is free
    /// afterwards.
    pub(crate) async fn run_live(&self, live: Box<Live>, target: Option<NodeName>) -> Option<TcpStream> {
        let (_entry, mut leaves) = self.registry.enter(&live.about, true);
        let state = match target {
            Some(target) => ConnectionState::Parked(live, target),
            None => ConnectionState::Serving(HttpStart::Live(live)),
        };
        self.run(state, &mut leaves).await
    }

    async fn run(&self, mut state: ConnectionState, leaves: &mut mpsc::Receiver<Box<Leave>>) -> Option<TcpStream> {
        loop {
            state = match state {
                ConnectionState::Serving(start) => match self.serving.serve(start, leaves).await {
                    Served::Parked(live, target) => ConnectionState::Parked(live, target),
                    Served::Ended(leg, ending) => return self.endings.announce(leg, &ending).await,
                    Served::Unfinished(leg, ending) => {
                        // The leg is closed, as after any failed handshake.
                        self.endings.announce(leg, &ending).await;
                        return None;
                    }
                    Served::Reset => return None,
                },
                ConnectionState::Parked(live, target) => match self.departures.depart(live, target).await {
                    Outcome::Stays(live) => ConnectionState::Serving(HttpStart::Live(live)),
                    Outcome::Left(leg) => return leg,
                },
            };
        }
    }
}
