//! The servers and sensors of the board, as the terminal and metrics read them.

use std::net::SocketAddr;

use watari_endings::{Server, Shares};
use watari_packets::Timestamp;

use super::state::{Board, Link, Sensor, Totals};
use crate::recent::{Covered, Recent};
use crate::report::Health;

/// A server on the board.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The name of its sensor.
    pub sensor: &'a str,
    pub address: SocketAddr,
    /// Its state and its latest seconds.
    pub server: &'a Server,
    /// Counts since it was seen first.
    pub totals: Totals,
    /// The time of the sensor's last report, by the sensor's own clock.
    pub last_report: Timestamp,
    /// The complete seconds.
    pub covered: Covered,
    /// Counts over the last ten complete seconds.
    pub recent: Recent,
    /// Connections that were open at the end of the last complete second.
    pub open: u32,
    /// X, Y and Z over the span of the current state; `None` if no connection ended in it.
    pub shares: Option<Shares>,
    /// The length of that span, in seconds.
    pub shares_span_s: u64,
}

/// The health of a sensor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SensorHealth {
    /// The sums of all its threads.
    pub health: Health,
    /// Threads that are so far behind the others that the board does not wait for them.
    pub hanging: usize,
    /// Number of events at servers that are not watched, because there are too many.
    pub unwatched: u64,
}

impl Board {
    /// Each server with its sensor.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.sensors.iter().flat_map(|(name, sensor)| {
            sensor.states.servers().map(|(address, server)| sensor.entry(name, *address, server))
        })
    }

    /// Each sensor with its health.
    pub fn sensors(&self) -> impl Iterator<Item = (&str, SensorHealth)> {
        self.sensors.iter().map(|(name, sensor)| (name.as_str(), sensor.health()))
    }

    /// Each sensor on another machine with its connection.
    pub fn links(&self) -> impl Iterator<Item = (&str, Link)> {
        self.sensors.iter().filter_map(|(name, sensor)| Some((name.as_str(), sensor.link?)))
    }
}

impl Sensor {
    /// The complete seconds of the sensor.
    pub(super) fn covered(&self) -> Covered {
        let began_ns = self.began.map_or(u64::MAX, |began| began.0);
        Covered::new(began_ns, self.judged.0 / 1_000_000_000)
    }

    pub(super) fn entry<'a>(&self, name: &'a str, address: SocketAddr, server: &'a Server) -> Entry<'a> {
        let covered = self.covered();
        let (shares, shares_span_s) = covered.shares(server, self.states.profile());
        Entry {
            sensor: name,
            address,
            server,
            totals: self.totals.get(&address).copied().unwrap_or_default(),
            last_report: self.judged,
            covered,
            recent: covered.short(server),
            open: covered.open(server),
            shares,
            shares_span_s,
        }
    }

    pub(super) fn health(&self) -> SensorHealth {
        let mut health = Health::default();
        for part in self.parts.values() {
            health += part.health;
        }
        let hanging = self.parts.values().filter(|part| !part.is_over && part.at < self.last_report).count();
        SensorHealth { health, hanging, unwatched: self.states.unwatched() }
    }
}
