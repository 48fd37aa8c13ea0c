//! `watari bench`: the load generator.
//!
//! It is a modern ANMA (Nakayama 2003, chapters 3 and 4). Every connection is timed at the same points (`connect`, the
//! request's `write`, `close`). Every request has one ending with a name. IPv4, IPv6, plain and TLS are counted
//! separately.
//!
//! ```text
//!   list, sources, schedule        which request, from which address, when
//!            |
//!            v
//!   load: one runtime a thread, slots or arrivals on it
//!            |  a client of its own each: sessions, cookies
//!            v
//!   client -> connection -> HTTP/1.1 or HTTP/2
//!            |  RequestSample, ConnectionSample
//!            v
//!   tally (one a thread) --merged--> summary --> JSON, page, terminal
//! ```

pub mod access_log;
mod axis;
pub mod capacity;
mod client;
pub mod compare;
mod connect;
pub mod connection_csv;
pub mod duration;
pub mod ending;
mod excerpt;
mod exchange;
pub mod expect;
pub mod fleet;
pub mod flow;
mod grid;
pub mod hdr_log;
pub mod histogram;
pub mod http1;
mod http2;
pub mod limits;
pub mod list;
pub mod load;
pub mod make_list;
pub mod needs;
pub mod ok_status;
pub mod page;
pub mod plan;
pub mod portion;
pub mod predict;
pub mod progress;
pub mod request;
pub mod requests;
pub mod round;
mod run;
pub mod sample;
pub mod schedule;
pub mod shares;
pub mod site;
pub mod source;
mod stream;
pub mod suites;
pub mod summary;
pub mod tally;
pub mod tls;
pub mod users;
pub mod view;
mod watchdog;
pub mod worker;

pub use run::ConnectionLog;
