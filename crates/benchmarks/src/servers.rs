//! The servers that are measured.
//!
//! Each runs with as many workers as it chooses for the machine, speaks TLS 1.3 with `TLS_AES_128_GCM_SHA256` (the client
//! offers nothing else), and writes no access log.

mod haproxy;
mod nginx;
mod watari;

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

pub(crate) use haproxy::{haproxy, haproxy_of_tls, haproxy_proxy};
pub(crate) use nginx::{
    Asked, nginx, nginx_as_origin, nginx_for_generators, nginx_proxy, nginx_stream, nginx_with_tickets,
};
pub(crate) use watari::{MOVED_FROM, MOVED_TO, Watari};

use rustix::process::Signal;

use crate::clients::Clients;
use crate::cpu;
use crate::failure::{Failure, doing};
use crate::load;
use crate::process::Process;
use crate::site::Key;

/// How long the last connections are given to be closed on the server's side, so that their end is counted too.
const SETTLING: Duration = Duration::from_millis(50);

/// Processes that together serve the site at one address.
pub(crate) struct Server {
    pub(crate) service: SocketAddr,
    /// From the client's side on.
    pub(crate) processes: Vec<Process>,
}

/// Processes that were told to end, because others do their work from now on.
pub(crate) struct Replaced {
    pub(crate) pids: Vec<u32>,
}

impl Replaced {
    /// nginx's workers, when the master is told to start new ones.
    pub(crate) fn workers(master: &Process) -> Result<Self, Failure> {
        let pids = cpu::children(master.id()).map_err(doing("looking for nginx's workers"))?;
        master.signal(Signal::HUP)?;
        Ok(Self { pids })
    }
}

impl Server {
    /// Waits until the site's files can be had.
    fn ready(mut self, clients: &Clients) -> Result<Self, Failure> {
        self.processes[0].wait_until(|| load::visit_singly(clients, self.service, Key::P256, 1))?;
        Ok(self)
    }

    /// Has `work` done, and tells what it cost each process: CPU seconds for each of `units`.
    pub(crate) fn cost(&self, units: f64, work: impl FnOnce() -> Result<(), Failure>) -> Result<Vec<f64>, Failure> {
        let before = self.cpu()?;
        work().map_err(|failure| self.served(failure))?;
        sleep(SETTLING);
        let after = self.cpu()?;
        Ok(after.iter().zip(before).map(|(after, before)| after.saturating_sub(before).as_secs_f64() / units).collect())
    }

    /// What each process has in memory, in bytes.
    pub(crate) fn memory(&self) -> Result<Vec<u64>, Failure> {
        self.processes.iter().map(Process::memory).collect()
    }

    fn served(&self, failure: Failure) -> Failure {
        let last_words: Vec<_> = self.processes.iter().map(Process::last_words).collect();
        Failure::Served { failure: Box::new(failure), last_words: last_words.join("\n") }
    }

    fn cpu(&self) -> Result<Vec<Duration>, Failure> {
        self.processes.iter().map(Process::cpu).collect()
    }
}
