//! The CPU use of hosts, each second.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use super::Testbed;
use crate::control_group::HostGroup;

const INTERVAL: Duration = Duration::from_secs(1);

/// A host, and for each second the time from the start on, and the cores used in the second before.
pub(super) type Series = (String, Vec<(f64, f64)>);

/// A thread that looks at all hosts of a testbed.
#[derive(Debug)]
pub struct Sampler {
    end: Sender<()>,
    thread: JoinHandle<Vec<Series>>,
}

impl Sampler {
    pub fn start(testbed: &Testbed) -> Self {
        let groups: Vec<_> = testbed.hosts().iter().map(|host| (host.name().to_owned(), host.group())).collect();
        let (end, ended) = channel();
        let thread = spawn(move || {
            let started = Instant::now();
            let mut watched: Vec<_> = groups.into_iter().map(Watched::new).collect();
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for host in &mut watched {
                    host.look(started);
                }
            }
            watched.into_iter().map(|host| host.series).collect()
        });
        Self { end, thread }
    }

    pub fn finish(self) -> Vec<Series> {
        drop(self.end);
        self.thread.join().unwrap_or_default()
    }
}

struct Watched {
    group: HostGroup,
    last: (Instant, Duration),
    series: Series,
}

impl Watched {
    fn new((name, group): (String, HostGroup)) -> Self {
        let used = group.used().unwrap_or_default();
        Self { group, last: (Instant::now(), used), series: (name, Vec::new()) }
    }

    fn look(&mut self, started: Instant) {
        let Ok(used) = self.group.used() else { return };
        let (before, now) = (self.last, Instant::now());
        let cores = used.saturating_sub(before.1).as_secs_f64() / (now - before.0).as_secs_f64();
        self.series.1.push((started.elapsed().as_secs_f64(), cores));
        self.last = (now, used);
    }
}
