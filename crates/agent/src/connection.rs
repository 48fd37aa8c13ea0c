//! One connection: its states, and the driver of each.

mod activity;
mod borrowed_stream;
mod client_end;
pub(crate) mod driver;
mod early_data;
pub(crate) mod handshake;
mod lingering;
pub(crate) mod requests;
pub(crate) mod serve;
pub(crate) mod serve_http;
pub(crate) mod stalls;
mod streams;
mod strict;
mod tunnel;
