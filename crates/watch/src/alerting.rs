//! Notifies receivers that a server is saturated or stopped, and that it no longer is.
//!
//! The paper's monitor notifies the administrator by another channel than its display (ANMA paper, section 2).
//!
//! ```text
//!   Board::poll ──▶ Notifier ──▶ Alerts: held, due, sent ──▶ outlets: webhook, Alertmanager, command, syslog
//!                                │    ▲
//!                                ▼    │ after a restart
//!                               journal
//! ```
//!
//! [`Alerts`] decides which notices each receiver gets, and when; it is pure. [`Notifier`] sends them.
//!
//! # Invariants
//!
//! 1. Delivery is at least once, and in order for each alert and receiver.
//! 2. A notice is on the disk before it is sent, and stays there until it is delivered.
//! 3. No receiver delays another, and none delays the monitor: [`Notifier::notify`] does not wait.

mod alerts;
mod command;
mod config;
mod delivery;
mod file;
mod http;
mod journal;
mod messages;
mod metrics;
mod notice;
mod notifier;
mod outlet;
mod shared;
mod syslog;

pub use self::http::ClientError;
pub use alerts::{ALERTS_MAX, Alerts, Backoff, Counts, Delivery, Policy, Retry, UNCONFIRMED};
pub use config::{AlertingConfigError, Facility, HttpTarget, RECEIVERS_MAX, Receiver, SyslogAddress, Target};
pub use file::{Config, ConfigError};
pub use metrics::NotifierMetrics;
pub use notice::{Episode, Key, Notice, Over, Trouble};
pub use notifier::{Notifier, StartError};
pub use shared::NotifierCounts;
