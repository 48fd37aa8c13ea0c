//! Connections between nodes over mutual TLS 1.3: links of the mesh, HTTP between agents, sensors with a judge, workers
//! of a load.
//!
//! * `peer`: dials and accepts. Both ends present certificates of the cluster's authority, which name the node and its
//!   roles.
//! * `listen`: accepts connections, and gives each one of a limited number of places until its peer is identified.
//! * `messages`: greetings with a version, and messages with their length before them. Sensors and workers use them.
//!   The mesh has frames of its own (`watari_wire`).
//! * `inbox`: reads messages in a task of its own.

mod inbox;
mod listen;
mod messages;
mod peer;

pub use inbox::Inbox;
pub use listen::accept_all;
pub use messages::{LinkFrame, Protocol, SILENCE_MAX, TalkError, decode, encode, greet, receive, send, skip, write};
pub use peer::{
    IdentifyError, Peer, PeerError, accept, accept_with, connect_to, connect_to_role, connect_with, identify,
};
