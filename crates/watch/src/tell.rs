//! Telling: who has to know learns that a server is saturated or stopped, and that it no longer is.
//!
//! The paper's monitor notifies the administrator by another way than the display he looks at (ANMA paper, section 2).
//!
//! ```text
//!   Board::poll ──▶ Teller ──▶ Alerts: held, due, told ──▶ outlets: webhook, Alertmanager, command, syslog
//!                                │    ▲
//!                                ▼    │ after a restart
//!                               journal
//! ```
//!
//! [`Alerts`] decides what each receiver is told, and when; it is pure. [`Teller`] does what it says.
//!
//! # Invariants
//!
//! 1. Delivery is at least once, and in order for each alert and receiver.
//! 2. What has to be told is on the disk before it is told, and stays there until it has been.
//! 3. No receiver holds up another, and none holds up who watches: [`Teller::tell`] waits for nobody.

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
