//! Options that several kinds of load have in common.

mod files;
mod fleet;
mod flow;
mod load;
mod protocol;
mod report;
mod target;
mod tls;

pub(super) use fleet::{FleetOptions, StaggeredFleetOptions};
pub(super) use flow::Flow;
pub(super) use load::{Load, TimeoutOptions};
pub(super) use protocol::{Protocol, Version};
pub(super) use report::Report;
pub(super) use target::Target;
pub(super) use tls::Tls;
