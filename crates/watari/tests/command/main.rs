//! The `watari` command as its users see it: arguments, output, exit status.

#![allow(clippy::unwrap_used)]

mod ctl;
mod demo;
mod example;
mod pki;
mod run;
mod support;
