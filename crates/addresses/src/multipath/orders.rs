//! Orders for single connections that change machines, with addresses that both machines have.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use watari_values::NodeName;

use super::Shared;
use crate::driver::{FlowsError, HOLD_MAX};
use crate::gate::Flow;
use crate::lock;
use crate::packets::Mac;

/// Orders for single flows, whose dispatcher changes. Clones share them.
#[derive(Clone)]
pub struct SteeredFlows {
    shared: Arc<Shared>,
}

/// Flows that the program was told of, and until when.
#[derive(Default)]
pub(super) struct MovingFlows(HashMap<Flow, Instant>);

impl MovingFlows {
    /// Removes the flows whose time is over.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Flow> {
        self.0.extract_if(|_, until| *until <= now).map(|(flow, _)| flow).collect()
    }
}

impl SteeredFlows {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// At the dispatcher that gives the flows: the dispatcher with this link-layer address is about to have them. Their
    /// packets are passed on to it for `ttl`.
    pub fn send_away(&self, flows: &[Flow], mac: Mac, ttl: Duration) -> Result<(), FlowsError> {
        self.move_flows(flows, mac, ttl)
    }

    /// This machine has the flows, or has them again.
    pub fn keep(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        let mut inner = lock(&self.shared.inner);
        for flow in flows {
            let flow = flow.plain();
            inner.flows.0.remove(&flow);
            inner.steering.keep_flow(flow.client, flow.server).map_err(FlowsError::Packets)?;
        }
        Ok(())
    }

    /// At the dispatcher that gets the flows, before `from` sends them away: passes their packets on to `from` as long as
    /// that has them, for [`HOLD_MAX`] at most.
    pub fn expect(&self, flows: &[Flow], from: &NodeName) -> Result<(), FlowsError> {
        let mac = lock(&self.shared.inner).members.mac(from);
        self.move_flows(flows, mac.ok_or(FlowsError::NoCandidate)?, HOLD_MAX)
    }

    /// After [`expect`](Self::expect): stores the packets of the flows for [`deliver`](Self::deliver), for as long.
    pub async fn hold(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        let flows: Vec<_> = flows.iter().map(|flow| flow.plain()).collect();
        let clients: BTreeSet<IpAddr> = flows.iter().map(|flow| flow.client.ip()).collect();
        let shared = self.shared.clone();
        blocking(move || lock(&shared.holder).hold(&shared.interface, &flows, Instant::now() + HOLD_MAX)).await?;
        for client in clients {
            // Answers leave by the route to the client.
            if let Err(error) = self.shared.netlink.resolve(client).await {
                tracing::debug!(%client, %error, "cannot resolve the next hop to a client");
            }
        }
        Ok(())
    }

    /// After the connections are released: delivers the packets that are held. Returns their number.
    pub async fn deliver(&self, flows: &[Flow]) -> Result<usize, FlowsError> {
        let (shared, flows) = (self.shared.clone(), flows.iter().map(|flow| flow.plain()).collect::<Vec<_>>());
        blocking(move || lock(&shared.holder).deliver(&flows)).await
    }

    fn move_flows(&self, flows: &[Flow], mac: Mac, ttl: Duration) -> Result<(), FlowsError> {
        let until = Instant::now() + ttl;
        let mut inner = lock(&self.shared.inner);
        for flow in flows {
            let flow = flow.plain();
            inner.steering.move_flow(flow.client, flow.server, mac).map_err(FlowsError::Packets)?;
            inner.flows.0.insert(flow, until);
        }
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(order: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, FlowsError> {
    spawn_blocking(order).await.map_err(|_| FlowsError::Panicked)?.map_err(FlowsError::Packets)
}
