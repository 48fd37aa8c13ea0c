//! One connection: its states, and the driver of each.

mod client_stream;
mod departing;
pub(crate) mod driver;
mod early_data;
mod guarded_body;
pub(crate) mod handshake;
pub(crate) mod http;
mod http1;
mod http2;
mod lingering;
pub(crate) mod preparations;
pub(crate) mod requests;
pub(crate) mod serve;
mod site_service;
pub(crate) mod stalls;
mod strict;
mod tunnel;
