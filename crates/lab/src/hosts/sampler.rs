//! The CPU use of hosts and the speed of the processor, each second.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use super::Testbed;
use crate::control_group::HostGroup;
use crate::speed::SpeedMeter;

const INTERVAL: Duration = Duration::from_secs(1);

/// What a sampler has seen.
#[derive(Debug, Default)]
pub struct Samples {
    /// By host: for each second, the time from the start on, and the cores used in the second before.
    pub hosts: BTreeMap<String, Vec<(f64, f64)>>,
    /// Of the processor, as repetitions of fixed work in a second of CPU time. None within the first second.
    pub speed: Option<f64>,
}

/// A thread that looks at all hosts of a testbed.
#[derive(Debug)]
pub struct Sampler {
    end: Sender<()>,
    thread: JoinHandle<Samples>,
}

impl Sampler {
    pub fn start(testbed: &Testbed) -> Self {
        let groups: Vec<_> = testbed.hosts().iter().map(|host| (host.name().to_owned(), host.group())).collect();
        let (end, ended) = channel();
        let thread = spawn(move || {
            let started = Instant::now();
            let mut watched: Vec<_> = groups.into_iter().map(Watched::new).collect();
            let mut speed = SpeedMeter::new();
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for host in &mut watched {
                    host.look(started);
                }
                speed.look();
            }
            Samples { hosts: watched.into_iter().map(|host| (host.name, host.series)).collect(), speed: speed.finish() }
        });
        Self { end, thread }
    }

    pub fn finish(self) -> Samples {
        drop(self.end);
        self.thread.join().unwrap_or_default()
    }
}

struct Watched {
    group: HostGroup,
    last: (Instant, Duration),
    name: String,
    series: Vec<(f64, f64)>,
}

impl Watched {
    fn new((name, group): (String, HostGroup)) -> Self {
        let used = group.used().unwrap_or_default();
        Self { group, last: (Instant::now(), used), name, series: Vec::new() }
    }

    fn look(&mut self, started: Instant) {
        let Ok(used) = self.group.used() else { return };
        let (before, now) = (self.last, Instant::now());
        let cores = used.saturating_sub(before.1).as_secs_f64() / (now - before.0).as_secs_f64();
        self.series.push((started.elapsed().as_secs_f64(), cores));
        self.last = (now, used);
    }
}
