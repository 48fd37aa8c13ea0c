//! `watari watch` on what really went over a network: servers of others under `watari bench`, and connections that a script ends in
//! every way, captured while they happen. What Wireshark and tcptrace say of the same captures is asked, too.

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
