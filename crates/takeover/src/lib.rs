//! Which node owns a service address, as two state machines: [`Candidate`] and [`Voter`].
//!
//! ```text
//!   candidate d1              voters d1, d2, a1             candidate d2
//!      |--- LeaseWanted (1) ------>|                            |
//!      |<-- LeaseGranted (1) ------| by a majority              |
//!      | the gate opens until      |                            |
//!      |   asked + owner's lease   |                            |
//!      |--- Advert --------------------------------------------->| stays silent
//!      |--- LeaseWanted (2) ------>| every `advert_interval`    |
//!      |<-- LeaseGranted (2) ------|                            |
//!      X killed, stopped or cut off|                            |
//!        the gate closes           |                            | no advert for a lease:
//!                                  | the leases end             |
//!                                  |<------- LeaseWanted -------|
//!                                  |-------- LeaseGranted ----->| the gate opens
//! ```
//!
//! * **A voter grants one candidate a lease at a time**, for the length of the lease from the moment at which it gets
//!   the
//!   request.
//! * **An owner counts its lease from the moment at which it asked**, and ends it earlier than the voters do
//!   ([`Terms::owner_lease`]).
//! * **The kernel ends the lease.** The gate of an address is a packet filter with a time limit. It closes whatever the
//!   owner's process does. The process only moves the limit.
//! * **An owner that leaves the address closes its gate first.** Only then it gives the lease back, to the voters or to
//!   its successor, with the number of its last request. A lease that was granted for a later request stays.
//!
//! docs/internals/takeover.md has the assumptions, the states and the faults that are covered. The machines hold no
//! socket and no clock. Call [`Candidate::handle`] with an event or at [`Candidate::wake_at`], then carry out the
//! actions in order.

mod candidate;
mod others;
mod renewals;
mod status;
mod terms;
mod voter;

pub use candidate::{Action, Candidate, Event, Settings};
pub use status::{OwnershipRole, Reason, Status, SwitchRefused};
pub use terms::{GATE_SLACK, LEASE_MAX, Terms, Time};
pub use voter::Voter;
