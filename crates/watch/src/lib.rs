//! `watari watch`: the state monitor.
//!
//! It carries ENMA's state monitor (ANMA paper, chapter 2) into the present. [`watari_packets`] reads frames, [`watari_endings`]
//! follows connections and judges servers; here both are driven, and what they say is written, shown and told.
//!
//! ```text
//!   capture files ─▶ Analysis: Decoder ─▶ Connections ─▶ Event ─▶ rows: a line for each connection, each request
//!                                                          │
//!                                                          ▼
//!                                                       States ─▶ spans: what a server was in, from when to when
//!
//!   a ring of an interface ─▶ Listener: Analysis ─▶ Event ─▶ rows          (a thread for each ring: live)
//!                                                     │
//!                                                     ▼
//!                                                  Tallies ─▶ Report, once a second ─▶ Board ─▶ terminal, web, metrics
//!                                                               │       ▲                │
//!                                                    link: a Reporter ═▶ a Judge         └▶ Change ─▶ lines, tell
//! ```
//!
//! # Invariants
//!
//! 1. Time is that of the packets. Whether a capture is read in a second or in the hour that it covers, the same is said of it.
//! 2. Nothing of what connections carried is kept or written but what [`watari_endings`] understands of it.

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
pub mod tell;
pub mod terminal;
pub mod web;
