//! Gates, addresses, announcements and flows in network namespaces, against the kernel. A test runs itself again in a
//! namespace of its own. The tests need `curl`, `ip`, `unshare` and `nsenter`.
#![allow(clippy::unwrap_used)]

mod bridge;
mod capture;
mod flows;
mod gate;
mod lab;
mod nodes;
mod switches;
