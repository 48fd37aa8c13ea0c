//! `watari watch`: the state monitor.
//!
//! It is a modern form of ENMA's state monitor (ANMA paper, chapter 2). [`watari_packets`] parses frames, and
//! [`watari_endings`] follows connections and judges servers. This crate drives both, and writes, displays and sends
//! the results.
//!
//! ```text
//!   capture files ─▶ Analysis: Decoder ─▶ Connections ─▶ Event ─▶ rows: a line for each connection, each request
//!                                                          │
//!                                                          ▼
//!                                                       States ─▶ spans: the states of a server, with begin and end
//!
//!   a ring of an interface ─▶ Listener: Analysis ─▶ Event ─▶ rows          (a thread for each ring: live)
//!                                                     │
//!                                                     ▼
//!                                                  Tallies ─▶ Report, once a second ─▶ Board ─▶ terminal, web, metrics
//!                                                               │       ▲                │
//!                                                    link: a Reporter ═▶ a Judge         └▶ Change ─▶ lines, alerting
//! ```
//!
//! # Invariants
//!
//! 1. Time is that of the packets. The results for a capture do not depend on how fast it is read.
//! 2. Contents of connections are neither stored nor written, except the fields that [`watari_endings`] parses.

pub mod alerting;
pub mod analysis;
pub mod batch;
pub mod board;
pub mod clock;
pub mod files;
pub mod link;
pub mod listener;
pub mod live;
pub mod metrics;
pub mod profile;
pub mod pseudonyms;
pub mod recent;
pub mod report;
pub mod rows;
pub mod spans;
pub mod terminal;
pub mod web;
