//! Sensors and judges over TLS on loopback.

#![allow(clippy::unwrap_used)]

mod arrivals;
mod losses;
mod refusals;
mod support;
