//! Whether the routers of a run delay packets as their settings say.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

use super::{RunningTrial, TrialError};
use crate::commands;
use crate::experiment::Router;
use crate::hosts;
use crate::result::Delay;
use crate::router::PROBES;
use crate::run::files::file_error;

/// How far the median of the round trips may be from its setting.
const ERROR_MAX_MS: f64 = 0.3;
/// How often it is measured, because other programs can keep the processors busy for a moment.
const ATTEMPTS: u32 = 5;
/// The port of the echo service.
const ECHO_PORT: u16 = 7;

impl RunningTrial<'_> {
    /// Measures the round trip through each router that passes packets, between hosts of its two networks, by IPv4 and by
    /// IPv6. In a full run, one that is too far from its setting is an error.
    pub(in crate::run) fn verify_delays(&self) -> Result<Vec<Delay>, TrialError> {
        let routers = self.plan.experiment().routers.iter().filter(|router| router.loss < 1.0);
        routers.map(|router| self.verify_delay(router)).collect()
    }

    /// The delay of the address that is farthest from the setting.
    fn verify_delay(&self, router: &Router) -> Result<Delay, TrialError> {
        let unjoined = || TrialError::Unjoined { router: router.name.clone() };
        // A host in both networks needs no router.
        let only_in = |network: &String, other: &String| {
            let hosts = &self.plan.experiment().hosts;
            let host = hosts.iter().find(|host| host.networks.contains(network) && !host.networks.contains(other));
            host.ok_or_else(unjoined)
        };
        let [one, other] = &router.between;
        let (near, far) = (only_in(one, other)?, only_in(other, one)?);
        let near_addresses = self.testbed.host(&near.name)?.addresses(one);
        let is_reached = |address: &&IpAddr| near_addresses.iter().any(|near| near.is_ipv4() == address.is_ipv4());
        let far_addresses = self.testbed.host(&far.name)?.addresses(other).iter().filter(is_reached);
        let delays = far_addresses.map(|address| self.verify_path(router, &near.name, &far.name, *address));
        let delays = delays.collect::<Result<Vec<_>, _>>()?;
        delays.into_iter().max_by(|one, other| one.error_ms().total_cmp(&other.error_ms())).ok_or_else(unjoined)
    }

    fn verify_path(&self, router: &Router, near: &str, far: &str, address: IpAddr) -> Result<Delay, TrialError> {
        let set_ms = router.round_trip.as_secs_f64() * 1e3;
        // Jitter moves the median.
        let error_max_ms = ERROR_MAX_MS + 2.0 * router.jitter.as_secs_f64() * 1e3;
        let mut best = Delay { router: router.name.clone(), set_ms, measured_ms: f64::INFINITY, is_exact: false };
        for _ in 0..ATTEMPTS {
            let measured_ms = self.measure_delay(router, near, far, address)?;
            let delay = Delay { measured_ms, ..best.clone() };
            if delay.error_ms() < best.error_ms() {
                best = delay;
            }
            if best.error_ms() <= error_max_ms {
                return Ok(Delay { is_exact: true, ..best });
            }
        }
        if self.plan.options.is_quick {
            return Ok(best);
        }
        Err(TrialError::Delay { router: router.name.clone(), address, set_ms, measured_ms: best.measured_ms })
    }

    /// The median of round trips between two hosts, in milliseconds.
    fn measure_delay(&self, router: &Router, near: &str, far: &str, address: IpAddr) -> Result<f64, TrialError> {
        let address = SocketAddr::new(address, ECHO_PORT).to_string();
        let [output, errors] = ["out", "err"].map(|suffix| self.folder.join(format!("echo.{suffix}")));
        let _echo = hosts::Process::spawn(self.watari(far, &["lab", "echo", &address])?, &output, &errors)?;
        let probes = PROBES.to_string();
        let ran = commands::run(&mut self.watari(near, &["lab", "probe", &address, "--probes", &probes])?);
        let ran = ran.map_err(|error| file_error("run", Path::new("watari lab probe"), error))?;
        let step = || format!("probe of {}", router.name);
        let output = ran.map_err(|stderr| TrialError::Step { name: step(), stderr })?;
        serde_json::from_slice(&output).map_err(|error| TrialError::Json { name: step(), error })
    }

    fn watari(&self, host: &str, words: &[&str]) -> Result<Command, TrialError> {
        let mut command = self.testbed.host(host)?.command("watari");
        command.args(words);
        Ok(command)
    }
}
