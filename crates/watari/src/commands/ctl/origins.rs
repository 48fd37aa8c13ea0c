//! `watari ctl origins`: the state of origins, and orders about them.

use clap::Subcommand;
use watari_proxy::OriginAddress;

use super::cells::or_dash;
use super::remote::{Done, Remote};
use crate::admin::Topic;
use crate::failure::Failure;

#[derive(Subcommand)]
pub(super) enum Order {
    /// Drain an origin: new requests go to other origins of its pool, if there are any
    ///
    /// A running download moves if another origin has shown that it has the same bytes; others end at the drained
    /// origin. `origins` shows what remains. The origin stays drained until `undrain`, or until the agent restarts.
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock origins drain http://10.0.0.1:8080")]
    Drain {
        /// The origin, as `origins` names it
        origin: OriginAddress,
    },
    /// End the drain of an origin: it gets requests again
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock origins undrain http://10.0.0.1:8080")]
    Undrain {
        /// The origin
        origin: OriginAddress,
    },
    /// Continue a running download from another origin
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock origins move 17 http://10.0.0.2:8080")]
    Move {
        /// The transfer, as `origins` numbers it
        transfer: u64,
        /// The origin to continue from [default: the one with the least load]
        origin: Option<OriginAddress>,
    },
}

impl Order {
    pub(super) async fn run(self, node: &Remote<'_>) -> Result<(), Failure> {
        match self {
            Self::Drain { origin } => {
                let done = Done::of("drain_origin", [("origin", origin.to_string())]);
                let said = format!("{origin} is draining: `watari ctl origins` shows what remains");
                node.order(Topic::DrainOrigin { origin, draining: true }, done.saying(said)).await
            }
            Self::Undrain { origin } => {
                let done = Done::of("undrain_origin", [("origin", origin.to_string())]);
                let said = format!("{origin} gets requests again");
                node.order(Topic::DrainOrigin { origin, draining: false }, done.saying(said)).await
            }
            Self::Move { transfer, origin } => {
                let to = origin.as_ref().map_or_else(|| "another origin".to_owned(), ToString::to_string);
                let done = Done::of(
                    "move_transfer",
                    [("transfer", transfer.to_string()), ("origin", or_dash(origin.as_ref()))],
                );
                let said = format!(
                    "transfer {transfer} was ordered to continue at {to}: `watari ctl origins` shows whether it does"
                );
                node.order(Topic::MoveTransfer { transfer, origin }, done.saying(said)).await
            }
        }
    }
}
