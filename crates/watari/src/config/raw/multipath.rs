//! `[dispatcher.multipath]`

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use watari_values::setting::Span;

use crate::config::spanned::Spanned;
use crate::config::value::{FilePath, SharedAddress};

/// The default of `withdraw`: BGP and OSPF daemons tell their neighbours within a second or two.
pub(crate) const WITHDRAW: Duration = Duration::from_secs(5);

/// Service addresses that several dispatchers have at the same time: routers spread clients over them (ECMP, anycast).
/// The dispatchers are on one link, and pass packets on to the dispatcher of the connection. The node needs the
/// capabilities `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_BPF`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMultipath {
    /// The addresses. The loopback interface has them while this node accepts connections, unless the machine has them
    /// permanently.
    pub(crate) addresses: Spanned<Vec<Spanned<SharedAddress>>>,
    /// The interface at which packets of routers arrive, and at which the other dispatchers are.
    pub(crate) interface: Spanned<String>,
    /// How long routers may go on to send packets to a node that ends. It passes them on for at least that time.
    #[schemars(extend("default" = Span::try_from(WITHDRAW).ok()))]
    pub(crate) withdraw: Option<Span>,
    /// A program that runs as `PROGRAM active ADDRESS INTERFACE` when this node has begun to accept connections, and with
    /// `standby` when it accepts none any more, so that a routing daemon withdraws the address.
    pub(crate) notify: Option<Spanned<FilePath>>,
}
