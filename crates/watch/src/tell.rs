//! Notifies receivers that a server is saturated or stopped, and that it no longer is.
//!
//! The paper's monitor notifies the administrator by another channel than its display (ANMA paper, section 2).
//!
//! ```text
//!   Board::poll ──▶ Teller ──▶ Alerts: held, due, sent ──▶ outlets: webhook, Alertmanager, command, syslog
//!                                │    ▲
//!                                ▼    │ after a restart
//!                               journal
//! ```
//!
//! [`Alerts`] decides which notices each receiver gets, and when; it is pure. [`Teller`] sends them.
//!
//! # Invariants
//!
//! 1. Delivery is at least once, and in order for each alert and receiver.
//! 2. A notice is on the disk before it is sent, and stays there until it is delivered.
//! 3. No receiver delays another, and none delays the monitor: [`Teller::tell`] does not wait.

mod alerts;
mod command;
mod config;
mod file;
mod http;
mod journal;
mod messages;
mod metrics;
mod notice;
mod outlet;
mod syslog;
mod teller;

pub use self::http::ClientError;
pub use alerts::{ALERTS_MAX, Alerts, Backoff, Counts, Delivery, Policy, Retry, UNCONFIRMED};
pub use config::{Facility, HttpTarget, RECEIVERS_MAX, Receiver, SyslogAddress, Target, TellConfigError};
pub use file::{Config, ConfigError};
pub use metrics::TellerMetrics;
pub use notice::{Episode, Key, Notice, Over, Trouble};
pub use teller::{StartError, Teller, TellerCounts};
