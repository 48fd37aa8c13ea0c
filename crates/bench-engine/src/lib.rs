//! The engine of `watari bench`: it makes a load of HTTP requests, and records how each ended.
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
//!   tally (one a thread) --merged--> `bench-report`, `bench-fleet`
//! ```
//!
//! It is the lowest crate of the load generator: engine, then `bench-report`, `bench-fleet`, `bench-analysis`. Each
//! imports only those before it. Its modules, each of which imports only those before it:
//!
//! 1. `duration`, `excerpt`, `round`, `shares`, `ending`, `causes`, `limits`: values
//! 2. `sample`, `connection_log`, `histogram`, `tally`, `progress`: what is recorded
//! 3. `list`, `source`, `schedule`, `users`, `flow`, `ok_status`, `site`, `request`, `requests`, `tls`: what is sent
//! 4. `plan`, `portion`, `needs`: all of it together, the part of one process, and what it needs of the system
//! 5. `keep`, `run`, `stream`, `watchdog`, `exchange`, `connect`, `http1`, `http2`, `client`: how it is sent
//! 6. `load`

pub mod causes;
mod client;
mod connect;
pub mod connection_log;
pub mod duration;
pub mod ending;
pub mod excerpt;
mod exchange;
pub mod flow;
pub mod histogram;
pub mod http1;
mod http2;
pub mod keep;
pub mod limits;
pub mod list;
pub mod load;
pub mod needs;
pub mod ok_status;
pub mod plan;
pub mod portion;
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
pub mod tally;
#[cfg(any(test, feature = "test-samples"))]
pub mod test_samples;
pub mod tls;
pub mod users;
mod watchdog;
