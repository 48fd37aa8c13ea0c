//! Gives connections of shared addresses to the primaries of their slots, whenever the dispatchers have agreed about these.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use watari_addresses::Multipath;
use watari_steering::Primaries;
use watari_values::NodeName;

use super::giving::{self, Scope};
use crate::shared::DispatcherShared;

/// How long connections that could not go wait for the next attempt.
const AGAIN: Duration = Duration::from_secs(5);
/// The same while this dispatcher leaves.
const AGAIN_LEAVING: Duration = Duration::from_millis(200);

/// Gives strays away until `shutdown`.
pub(crate) async fn run(shared: Arc<DispatcherShared>, multipath: Multipath, shutdown: CancellationToken) {
    let (mut settled, mut successor) = (multipath.settled(), shared.successor.subscribe());
    let work = async {
        loop {
            // In an upgrade, connections go to the new process of this node.
            if successor.wait_for(Option::is_none).await.is_err() {
                return;
            }
            let Some(primaries) = settled.borrow_and_update().clone() else {
                if settled.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let is_leaving = primaries.count(multipath.node()) == 0;
            // What is given depends on the primaries.
            tokio::select! {
                () = settle(&shared, &multipath, &primaries) => {}
                _ = settled.changed() => continue,
                _ = successor.wait_for(Option::is_some) => continue,
            }
            tokio::select! {
                () = sleep(if is_leaving { AGAIN_LEAVING } else { AGAIN }) => {}
                _ = settled.changed() => {}
            }
        }
    };
    shutdown.run_until_cancelled(work).await;
}

/// Gives each stray to its primary, as far as possible.
async fn settle(shared: &Arc<DispatcherShared>, multipath: &Multipath, primaries: &Arc<Primaries>) {
    let mut targets = BTreeSet::new();
    shared.table.for_each_flow(|flow| {
        let address = flow.server.ip();
        if let Some(primary) = stray_to(primaries, multipath.node(), flow.client).filter(|_| multipath.has(address)) {
            targets.insert((address, primary.clone()));
        }
    });
    let runs = targets.into_iter().map(|(address, to)| {
        let (primaries, me, there) = (primaries.clone(), multipath.node().clone(), to.clone());
        let clients = move |client| stray_to(&primaries, &me, client) == Some(&there);
        async move { giving::give(shared, Scope { address, clients: Some(Box::new(clients)) }, &to).await }
    });
    futures_util::future::join_all(runs).await;
}

/// The primary of a client, if it is another dispatcher.
fn stray_to<'a>(primaries: &'a Primaries, me: &NodeName, client: SocketAddr) -> Option<&'a NodeName> {
    primaries.of(client).filter(|primary| *primary != me)
}

impl DispatcherShared {
    /// The connections at these addresses whose primary is another dispatcher. Those that cannot change their dispatcher
    /// are among them, whatever their primary is.
    pub(crate) fn count_strays(&self, me: &NodeName, addresses: &BTreeSet<IpAddr>, primaries: &Primaries) -> usize {
        let (mut strays, mut all) = (0, 0);
        self.table.for_each_flow(|flow| {
            all += 1;
            strays += usize::from(addresses.contains(&flow.server.ip()) && primaries.of(flow.client) != Some(me));
        });
        let others = usize::try_from(self.metrics.connections.get()).unwrap_or_default().saturating_sub(all);
        strays + others
    }
}
