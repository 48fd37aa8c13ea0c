//! One connection: its states, and the driver of each.

mod borrowed_stream;
mod client_end;
mod client_stream;
mod departing;
pub(crate) mod driver;
mod early_data;
pub(crate) mod handshake;
pub(crate) mod http;
mod http1;
mod http2;
mod lingering;
mod part_wakers;
pub(crate) mod preparations;
pub(crate) mod requests;
pub(crate) mod serve;
mod site_service;
pub(crate) mod stalls;
mod stream_tasks;
mod streams;
mod strict;
mod tunnel;
