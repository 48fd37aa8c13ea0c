//! A router between two networks that delays, loses and shapes packets, for IPv4 and IPv6.
//!
//! ```text
//!               rule: from eth0 to tun0            a packet is written when it is due     main table
//! network A --> eth0 ----------------> tun0 --> [reader --> Queue --> writer] --> tun1 ---------> eth1 --> network B
//! network A <-- eth0 <---------------- tun0 <-- [writer <-- Queue <-- reader] <-- tun1 <--------- eth1 <-- network B
//! ```
//!
//! * **Delay**: each direction has half of the round trip. Jitter adds a uniform random time, up to its setting, to each
//!   packet of each direction. Packets keep their order: one waits for the packet before it.
//! * **Loss**: each packet is lost with the same probability in each direction. A lost packet takes no time of the link.
//! * **Rate**: counts octets of IP packets, without link-layer headers. A packet that would wait longer than
//!   [`BACKLOG_MAX`] until the link is free is dropped (drop-tail).
//! * **Large packets**: without loss and rate, segments that a host sends at once (GSO) pass as one packet, with a checksum
//!   that is not computed yet. With loss or a rate, the kernel splits them first, so that each segment is lost or sent
//!   by itself.
//! * The TTL decreases by two. The MTU is 1,500 octets.
//!
//! **Accuracy.** The threads run with `SCHED_FIFO` (by `chrt`), and so wake up on time also when other programs use all
//! processors. Without `CAP_SYS_NICE` the router warns and runs as a normal process. It learns how late its threads wake
//! up, and allows for it: see `lateness`. In a round trip, a packet and its answer are at most 0.3 ms early together. On a
//! virtual machine with two processors, the median of [`measure`] was 0.05 to 0.17 ms above each setting from 1 ms to
//! 300 ms, 0.05 ms of which the hosts took also without a router. A round trip of zero is not exact: it takes 0.2 ms.
//!
//! **Invariant**: while no router process runs, no packet passes without a delay. Rules that stay in the namespace then
//! reject packets (ICMP administratively prohibited, which also sockets of UDP report).

mod driver;
mod lateness;
mod plumbing;
mod probe;
mod queue;

use std::io::{self, Write as _};
use std::time::Duration;

use crate::experiment;

pub use probe::{PROBES, echo, measure};
pub use queue::BACKLOG_MAX;

/// What a router does to packets.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The delay that a packet and its answer have together, at most [`DELAY_MAX`].
    pub round_trip: Duration,
    /// The largest random addition to the delay of a direction, at most [`DELAY_MAX`].
    pub jitter: Duration,
    /// The share of lost packets in each direction, from 0 to 1.
    pub loss: f64,
    /// Bits per second in each direction, at least [`RATE_MIN`]. None is unlimited.
    pub rate: Option<f64>,
    /// The same packets at the same times have the same losses and the same jitter again.
    pub seed: u64,
}

pub const DELAY_MAX: Duration = Duration::from_mins(1);
/// The largest packet takes nine minutes at this rate.
pub const RATE_MIN: f64 = 1e3;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the loss of the router is {0}: set a share from 0 to 1")]
    Loss(f64),
    #[error("the rate of the router is {0} bits per second: set {RATE_MIN} or more")]
    Rate(f64),
    #[error("the delay of the router is {0:?}: set {DELAY_MAX:?} or less")]
    Delay(Duration),
    #[error("cannot {doing}: {error}")]
    System { doing: String, error: io::Error },
    #[error("`ip {arguments}` failed: {stderr}: the router needs root, or a user namespace with its own network")]
    Ip { arguments: String, stderr: String },
    #[error("no probe to {0} was answered: check that the echo service runs there, and the routes of both hosts")]
    NoAnswer(std::net::SocketAddr),
}

/// Forwards packets between two interfaces of this network namespace until the process ends. Prints `ready` when packets
/// pass. The addresses of the interfaces and the routes of the hosts are the caller's.
///
/// Changes the scheduling of the whole process, and the rules and settings of the namespace.
pub fn run(interfaces: [&str; 2], settings: &Settings) -> Result<(), Error> {
    settings.check()?;
    if let Err(error) = plumbing::become_real_time() {
        let warning = "the router runs without SCHED_FIFO, and delays are less exact on a busy machine";
        let _ = writeln!(io::stderr(), "warning: {error}: {warning}");
    }
    let devices = driver::open(settings)?;
    plumbing::connect(interfaces)?;
    println!("ready");
    io::stdout().flush().map_err(failed("write to standard output"))?;
    Err(driver::forward(devices, settings))
}

impl Settings {
    /// Those of an experiment's router.
    pub(crate) fn of(router: &experiment::Router, seed: u64) -> Self {
        let experiment::Router { round_trip, jitter, loss, rate, .. } = *router;
        Self { round_trip, jitter, loss, rate, seed }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(Error::Loss(self.loss));
        }
        if let Some(rate) = self.rate.filter(|rate| !(RATE_MIN..=f64::MAX).contains(rate)) {
            return Err(Error::Rate(rate));
        }
        match self.round_trip.max(self.jitter) {
            delay if delay > DELAY_MAX => Err(Error::Delay(delay)),
            _ => Ok(()),
        }
    }

    /// True if segments that a host sends at once may share their fate.
    fn passes_large_packets(&self) -> bool {
        self.loss == 0.0 && self.rate.is_none()
    }
}

fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::System { doing: doing.into(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outside_their_ranges_are_rejected() {
        let good = Settings { loss: 1.0, rate: Some(RATE_MIN), round_trip: DELAY_MAX, ..Settings::default() };
        assert!(good.check().is_ok());
        for loss in [-0.1, 1.1, f64::NAN] {
            assert!(matches!(Settings { loss, ..good.clone() }.check(), Err(Error::Loss(_))));
        }
        for rate in [0.0, 999.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Settings { rate: Some(rate), ..good.clone() }.check(), Err(Error::Rate(_))));
        }
        let longer = DELAY_MAX + Duration::from_nanos(1);
        assert!(matches!(Settings { jitter: longer, ..good.clone() }.check(), Err(Error::Delay(_))));
        assert!(matches!(Settings { round_trip: longer, ..good }.check(), Err(Error::Delay(_))));
    }
}
