//! `watari watch` on network traffic: other servers under `watari bench`, and connections that a script ends in every
//! way. The analyses of Wireshark and tcptrace must agree on the same captures.

#![allow(clippy::unwrap_used)]

mod capture;
mod command;
mod endings;
mod lab;
mod live;
mod namespace;
mod others;
mod rows;
mod script;
mod servers;
mod spoiled;
