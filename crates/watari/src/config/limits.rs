//! The tables of limits. A limit that is not set keeps the default of its role.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;

use super::value::Span;

/// `[dispatcher.limits]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DispatcherLimits {
    connections_max: Option<NonZeroUsize>,
    connections_per_client_max: Option<NonZeroUsize>,
    queue_max: Option<usize>,
    queue_timeout: Option<Span>,
    proxy_header_timeout: Option<Span>,
    handshake_timeout: Option<Span>,
    user_timeout: Option<Span>,
    idle_timeout: Option<Span>,
    lifetime_max: Option<Span>,
    leg_timeout: Option<Span>,
    idle_legs_max: Option<usize>,
    drain_rate: Option<NonZeroU32>,
    move_timeout: Option<MoveTimeout>,
    final_timeout: Option<Span>,
}

/// `[agent.limits]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentLimits {
    connections_max: Option<NonZeroUsize>,
    unidentified_max: Option<Within<1, 65_536>>,
    unidentified_per_address_max: Option<Within<1, 65_536>>,
    requests_max: Option<NonZeroUsize>,
    head_bytes_max: Option<Within<8_192, 1_048_576>>,
    head_fields_max: Option<Within<1, 1_000>>,
    target_bytes_max: Option<NonZeroUsize>,
    held_max: Option<NonZeroUsize>,
    idle_legs_max: Option<usize>,
    handshake_timeout: Option<Span>,
    keep_alive_timeout: Option<Span>,
    transfer_timeout: Option<Span>,
    tunnel_timeout: Option<Span>,
    end_timeout: Option<Span>,
}

/// `[node.limits]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeLimits {
    unidentified_max: Option<Within<1, 65_536>>,
    unidentified_per_address_max: Option<Within<1, 65_536>>,
}

/// The longest time that a move may be undecided. The agents have timeouts of their own, which must be longer: the
/// source keeps a fenced connection for 15 s, and an agent keeps a leg without its preface for 10 s.
const MOVE_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// At most [`MOVE_TIMEOUT_MAX`].
#[derive(Deserialize)]
#[serde(try_from = "Span")]
struct MoveTimeout(Duration);

impl TryFrom<Span> for MoveTimeout {
    type Error = String;

    fn try_from(span: Span) -> Result<Self, String> {
        if span.get() > MOVE_TIMEOUT_MAX {
            let max_s = MOVE_TIMEOUT_MAX.as_secs();
            return Err(format!("move_timeout is at most {max_s}s: agents wait at most 10 s for the decision"));
        }
        Ok(Self(span.get()))
    }
}

/// A number from `MIN` to `MAX`.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "usize")]
pub(super) struct Within<const MIN: usize, const MAX: usize>(pub(super) usize);

impl<const MIN: usize, const MAX: usize> TryFrom<usize> for Within<MIN, MAX> {
    type Error = String;

    fn try_from(number: usize) -> Result<Self, String> {
        if (MIN..=MAX).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("{number} is not from {MIN} to {MAX}"))
        }
    }
}

impl From<DispatcherLimits> for watari_dispatcher::Limits {
    fn from(set: DispatcherLimits) -> Self {
        let default = Self::default();
        Self {
            connections_max: set.connections_max.map_or(default.connections_max, NonZeroUsize::get),
            connections_per_client_max: set
                .connections_per_client_max
                .map_or(default.connections_per_client_max, NonZeroUsize::get),
            queue_max: set.queue_max.unwrap_or(default.queue_max),
            queue_timeout: set.queue_timeout.map_or(default.queue_timeout, Span::get),
            proxy_header_timeout: set.proxy_header_timeout.map_or(default.proxy_header_timeout, Span::get),
            handshake_timeout: set.handshake_timeout.map_or(default.handshake_timeout, Span::get),
            user_timeout: set.user_timeout.map_or(default.user_timeout, Span::get),
            idle_timeout: set.idle_timeout.map_or(default.idle_timeout, Span::get),
            lifetime_max: set.lifetime_max.map_or(default.lifetime_max, Span::get),
            leg_timeout: set.leg_timeout.map_or(default.leg_timeout, Span::get),
            idle_legs_max: set.idle_legs_max.unwrap_or(default.idle_legs_max),
            drain_rate: set.drain_rate.map_or(default.drain_rate, NonZeroU32::get),
            move_timeout: set.move_timeout.map_or(default.move_timeout, |timeout| timeout.0),
            final_timeout: set.final_timeout.map_or(default.final_timeout, Span::get),
        }
    }
}

impl From<NodeLimits> for watari_mesh::Limits {
    fn from(set: NodeLimits) -> Self {
        let default = Self::default();
        Self {
            unidentified_max: set.unidentified_max.map_or(default.unidentified_max, |max| max.0),
            unidentified_per_address_max: set
                .unidentified_per_address_max
                .map_or(default.unidentified_per_address_max, |max| max.0),
            ..default
        }
    }
}

impl From<AgentLimits> for watari_agent::Limits {
    fn from(set: AgentLimits) -> Self {
        let default = Self::default();
        Self {
            connections_max: set.connections_max.map_or(default.connections_max, NonZeroUsize::get),
            unidentified_max: set.unidentified_max.map_or(default.unidentified_max, |max| max.0),
            unidentified_per_address_max: set
                .unidentified_per_address_max
                .map_or(default.unidentified_per_address_max, |max| max.0),
            requests_max: set.requests_max.map_or(default.requests_max, NonZeroUsize::get),
            head_bytes_max: set.head_bytes_max.map_or(default.head_bytes_max, |max| max.0),
            head_fields_max: set.head_fields_max.map_or(default.head_fields_max, |max| max.0),
            target_bytes_max: set.target_bytes_max.map_or(default.target_bytes_max, NonZeroUsize::get),
            held_max: set.held_max.map_or(default.held_max, NonZeroUsize::get),
            idle_legs_max: set.idle_legs_max.unwrap_or(default.idle_legs_max),
            handshake_timeout: set.handshake_timeout.map_or(default.handshake_timeout, Span::get),
            keep_alive_timeout: set.keep_alive_timeout.map_or(default.keep_alive_timeout, Span::get),
            transfer_timeout: set.transfer_timeout.map_or(default.transfer_timeout, Span::get),
            tunnel_timeout: set.tunnel_timeout.map_or(default.tunnel_timeout, Span::get),
            end_timeout: set.end_timeout.map_or(default.end_timeout, Span::get),
            ..default
        }
    }
}
