//! The limits of an agent.

use std::num::NonZeroUsize;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use watari_sys::UnidentifiedLimits;
use watari_values::setting::{As, Span, Within};

/// The limits of an agent. Every wait has a time limit.
// `[agent.limits]` of a configuration file: the documentation of a field is that of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at a time, including those in their handshake or held for a decision. The agent resets further ones,
    /// and refuses further moves to it. The same number of legs from known addresses may wait for their preface, or
    /// `unidentified_max` if that is more. Known addresses are those of members, and those from which an authenticated
    /// preface has come within the last hour.
    #[serde(with = "As::<NonZeroUsize>")]
    pub connections_max: usize,
    /// Legs from unknown addresses that may wait for their preface. For a newer leg, the agent resets the oldest leg of
    /// the address with the most legs.
    #[serde(with = "As::<Within<1, 65_536>>")]
    pub unidentified_max: usize,
    /// Legs from one unknown address (IPv6: a network of 64 bits) that may wait for their preface. For a newer leg, the
    /// agent resets the oldest.
    #[serde(with = "As::<Within<1, 65_536>>")]
    pub unidentified_per_address_max: usize,
    /// Requests in progress at a time, over all connections. The agent answers further ones with 503. A response is in
    /// progress until the client has taken it: each may hold an open file and some 200 KiB.
    #[serde(with = "As::<NonZeroUsize>")]
    pub requests_max: usize,
    /// The longest head of a request in bytes. For HTTP/2 it limits the field section, with 32 bytes of overhead for
    /// each field (RFC 9113, section 6.5.2). The agent answers longer ones with 431.
    #[serde(with = "As::<Within<8_192, 1_048_576>>")]
    pub head_bytes_max: usize,
    /// The most fields of a request. The agent answers requests with more with 431.
    #[serde(with = "As::<Within<1, 1_000>>")]
    pub head_fields_max: usize,
    /// The longest path of a request with its query, in bytes. The agent answers longer ones with 414.
    #[serde(with = "As::<NonZeroUsize>")]
    pub target_bytes_max: usize,
    /// Connections from other agents that are held for a decision at a time. The agent refuses further ones.
    #[serde(with = "As::<NonZeroUsize>")]
    pub held_max: usize,
    /// Idle legs that are kept for other connections. The agent closes further ones.
    pub idle_legs_max: usize,
    /// The time from the preface to the end of the handshake. A `ClientHello` may wait for its turn for half of it.
    #[serde(with = "As::<Span>")]
    pub handshake_timeout: Duration,
    /// The time without a request on a connection that has none in progress. Also the time for a request's head to be
    /// complete.
    #[serde(with = "As::<Span>")]
    pub keep_alive_timeout: Duration,
    /// The time for the client to take the next piece of a response (at most 64 KiB), or to send the next piece of a
    /// request. After it, the agent cuts the connection. If the connection has other HTTP/2 requests, it cuts it when
    /// these are over.
    #[serde(with = "As::<Span>")]
    pub transfer_timeout: Duration,
    /// The time without a byte in either direction on a connection or HTTP/2 stream that is a tunnel to an origin, as
    /// after an upgrade (WebSocket).
    #[serde(with = "As::<Span>")]
    pub tunnel_timeout: Duration,
    /// The time for the client to take the last bytes, and to end its own stream.
    #[serde(with = "As::<Span>")]
    pub end_timeout: Duration,

    // The rest is not configurable.
    /// Bytes of client data held with connections that are held for a decision.
    #[serde(skip)]
    pub held_bytes_max: usize,
    /// The time from accepting a leg to its preface. It has to be longer than a dispatcher's `move_timeout`, because a
    /// move begins with connecting a leg.
    #[serde(skip)]
    pub preface_timeout: Duration,
    /// How long an idle leg waits for another connection. It has to be much longer than a dispatcher keeps the leg.
    #[serde(skip)]
    pub idle_leg_timeout: Duration,
    /// How long a connection given away waits for the decision before it is destroyed. It has to be longer than a
    /// dispatcher's `move_timeout`.
    #[serde(skip)]
    pub fence_timeout: Duration,
    /// How long a held connection waits for the decision before it is dropped. It has to be longer than
    /// `fence_timeout`: the target may get the connection for as long as the source may get it back.
    #[serde(skip)]
    pub hold_timeout: Duration,
    /// The interval at which the agent repeats a proposal, or the announcement of a stream's end.
    #[serde(skip)]
    pub retry_interval: Duration,
    /// The age at which a leg key is replaced.
    #[serde(skip)]
    pub leg_key_lifetime: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 8_000,
            unidentified_max: 1_024,
            unidentified_per_address_max: 64,
            requests_max: 2_048,
            head_bytes_max: 64 << 10,
            head_fields_max: 100,
            target_bytes_max: 16 << 10,
            held_max: 1_024,
            idle_legs_max: 1_024,
            handshake_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_mins(1),
            transfer_timeout: Duration::from_mins(2),
            tunnel_timeout: Duration::from_hours(1),
            end_timeout: Duration::from_secs(10),
            held_bytes_max: 64 << 20,
            preface_timeout: Duration::from_secs(10),
            idle_leg_timeout: Duration::from_mins(1),
            fence_timeout: Duration::from_secs(15),
            hold_timeout: Duration::from_secs(30),
            retry_interval: Duration::from_millis(500),
            leg_key_lifetime: Duration::from_mins(1),
        }
    }
}

impl Limits {
    /// What an HTTP/1 client may send.
    pub(crate) fn http1(&self) -> watari_http1::Limits {
        let Self { head_bytes_max, head_fields_max, target_bytes_max, .. } = *self;
        watari_http1::Limits { head_bytes_max, fields_max: head_fields_max, target_bytes_max }
    }

    /// The limits of legs without a preface.
    pub(crate) fn unidentified(&self) -> UnidentifiedLimits {
        UnidentifiedLimits {
            // A move connects a leg before it has a preface to send, so dispatchers may need one leg for each
            // connection, and a few for their checks.
            known_max: self.connections_max.max(self.unidentified_max),
            max: self.unidentified_max,
            per_address_max: self.unidentified_per_address_max,
        }
    }
}
