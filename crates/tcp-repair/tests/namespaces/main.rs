//! Connections that move between machines, against the kernel. A test runs itself again in a namespace of its own. The
//! tests need `ip` and `unshare`.
#![allow(clippy::unwrap_used)]

mod lab;
mod moves;
mod peer;
mod refusals;
