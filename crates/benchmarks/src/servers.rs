//! The servers that are measured.
//!
//! Each server runs as many workers as it chooses for the machine, and writes no access log. The clients' offer selects
//! the version of TLS and the cipher suite.

mod haproxy;
mod nginx;
mod varnish;
mod watari;

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) use haproxy::{haproxy, haproxy_config, haproxy_of_tls, haproxy_proxy};
pub(crate) use nginx::{
    Asked, nginx, nginx_as_cacheable_origin, nginx_as_origin, nginx_cache, nginx_for_generators, nginx_proxy,
    nginx_stream, nginx_with_tickets,
};
pub(crate) use varnish::haproxy_varnish;
pub(crate) use watari::{MOVED_FROM, MOVED_TO, UpgradedNode, Watari, ctl, program};

use rustix::process::Signal;
use watari_bench_engine::plan::Pace;

use crate::clients::{Clients, Work};
use crate::cpu;
use crate::failure::{Failure, doing};
use crate::process::Process;
use crate::site::Key;

/// Time in which the server closes the last connections, so that the CPU time of the close counts, too.
const SETTLING: Duration = Duration::from_millis(50);
/// The memory is stable when it has not changed for `STEADY`. The benchmark waits for that at most `STEADY_MAX`.
const STEADY: Duration = Duration::from_secs(5);
const STEADY_MAX: Duration = Duration::from_secs(30);
const STEADY_POLL: Duration = Duration::from_millis(250);
/// Smaller changes of the memory do not count, in bytes.
const MEMORY_NOISE: u64 = 64 << 10;

/// Processes that together serve the site at one address.
pub(crate) struct Server {
    pub(crate) service: SocketAddr,
    /// In the order in which a request passes them.
    pub(crate) processes: Vec<Process>,
}

/// Processes that have been signalled to end, because others take over their work.
pub(crate) struct Replaced {
    pub(crate) pids: Vec<u32>,
    /// The time of the signal or order.
    pub(crate) since: Instant,
}

impl Replaced {
    /// Sends SIGHUP to nginx's master, and returns the workers that new ones replace.
    pub(crate) fn workers(master: &Process) -> Result<Self, Failure> {
        let pids = cpu::children(master.id()).map_err(doing("looking for nginx's workers"))?;
        let since = Instant::now();
        master.signal(Signal::HUP)?;
        Ok(Self { pids, since })
    }
}

impl Server {
    /// Waits until the server delivers the site's files.
    fn ready(mut self, clients: &Clients) -> Result<Self, Failure> {
        let first = Work::of_visitors(Key::P256, Pace::Closed { connections: 1 }, 1);
        self.processes[0].wait_until(|| clients.ask_timed(self.service, &first))?;
        Ok(self)
    }

    /// Does `work`, and returns the cost for each process, in CPU seconds per unit.
    pub(crate) fn cost(&self, units: f64, work: impl FnOnce() -> Result<(), Failure>) -> Result<Vec<f64>, Failure> {
        let before = self.cpu()?;
        work().map_err(|failure| self.served(failure))?;
        sleep(SETTLING);
        let after = self.cpu()?;
        Ok(after.iter().zip(before).map(|(after, before)| after.saturating_sub(before).as_secs_f64() / units).collect())
    }

    /// Memory of each process, in bytes.
    pub(crate) fn memory(&self) -> Result<Vec<u64>, Failure> {
        self.processes.iter().map(Process::memory).collect()
    }

    /// Waits until the memory of every process is stable, and returns it in bytes.
    pub(crate) fn steady_memory(&self) -> Result<Vec<u64>, Failure> {
        let begun = Instant::now();
        let (mut last, mut since) = (self.memory()?, Instant::now());
        while since.elapsed() < STEADY && begun.elapsed() < STEADY_MAX {
            sleep(STEADY_POLL);
            let now = self.memory()?;
            if last.iter().zip(&now).any(|(last, now)| last.abs_diff(*now) > MEMORY_NOISE) {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }

    fn served(&self, failure: Failure) -> Failure {
        let last_words: Vec<_> = self.processes.iter().map(Process::last_words).collect();
        Failure::Served { failure: Box::new(failure), last_words: last_words.join("\n") }
    }

    fn cpu(&self) -> Result<Vec<Duration>, Failure> {
        self.processes.iter().map(Process::cpu).collect()
    }
}
