//! Service addresses that move between dispatchers, in network namespaces: a client and a bridge (the test's own
//! namespace), two dispatchers, and an agent as witness. Or a [standby pair](pair).
//!
//! During each test, the client asks every 10 ms by ARP who has the address, and a capture has the answers. No request
//! may get answers of two machines, and no connection either. The tests need `curl`, `faketime`, `ip`, `nsenter`,
//! `openssl` and `unshare`.
#![allow(clippy::unwrap_used)]

mod bad_input;
mod capabilities;
mod chaos;
mod faults;
mod full_disk;
mod lab;
mod multipath;
mod orders;
mod pair;
mod standby;
mod storm;
mod switches;
mod visitor;
mod watch;
