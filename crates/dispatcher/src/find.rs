//! Finds an agent for a connection, and opens a leg to it.

use std::net::IpAddr;

use watari_values::NodeName;

use crate::agents::Assignment;
use crate::legs::{Leg, LegChoice};
use crate::scheduler::{Place, QueuePosition, Stopwatch};
use crate::shared::DispatcherShared;

/// The most agents to try for one client.
const LEGS_TRIED_MAX: usize = 3;

/// The agents for a new connection: a leg to the agent that does the handshake, and the slots.
pub(crate) struct Found {
    pub(crate) leg: Leg,
    /// The slot at the agent that does the handshake.
    pub(crate) place: Place,
    /// The slot at the agent that gets the connection after the handshake, if that is another.
    pub(crate) reserved: Option<Place>,
    pub(crate) stopwatch: Stopwatch,
}

/// Finds another agent for a connection of `client`, because the first agent, `gone`, was lost before it answered. The
/// leg is a new one. If there is no other agent, `gone` is tried again: perhaps only its leg was lost, or a new process
/// of it has taken over.
pub(crate) async fn find_again(
    shared: &DispatcherShared,
    client: IpAddr,
    gone: NodeName,
) -> Result<Found, &'static str> {
    let other = shared.agents.assign(client, &[gone], QueuePosition::Again);
    let assignment = match other {
        Ok(assignment) => assignment,
        Err(_) => shared.agents.assign_soon(client, &[], QueuePosition::Again).await.map_err(|_| "no_leg")?,
    };
    find_leg(shared, client, assignment, LegChoice::New).await
}

/// Opens a leg to the assigned agent, or to another one if that fails.
pub(crate) async fn find_leg(
    shared: &DispatcherShared,
    client: IpAddr,
    mut assignment: Assignment,
    which: LegChoice,
) -> Result<Found, &'static str> {
    let mut failed = Vec::new();
    loop {
        let Assignment { handshake: place, bulk: reserved } = assignment;
        let mut stopwatch = Stopwatch::start(&place);
        match shared.leg_to(place.agent(), which).await {
            Ok(leg) => {
                stopwatch.opened();
                return Ok(Found { leg, place, reserved, stopwatch });
            }
            Err(error) => {
                tracing::warn!(agent = %place.agent(), %error, "cannot connect a leg");
                failed.push(place.agent().clone());
            }
        }
        if failed.len() == LEGS_TRIED_MAX {
            return Err("no_leg");
        }
        drop((place, reserved));
        assignment = shared.agents.assign(client, &failed, QueuePosition::Again).map_err(|_| "no_leg")?;
    }
}
