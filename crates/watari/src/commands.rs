//! The subcommands, one file each, with arguments, actions and output.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod lab;
pub(crate) mod man;
pub(crate) mod pki;
mod print;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod watch;
