//! A trial: one variant once. Its hosts are new, its processes start, its steps run, and all of it ends.

mod delays;
mod steps;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::Places;
use super::files::{FileError, create_dir, file_error, in_place, write_templates};
use crate::control_group::Groups;
use crate::experiment::{Process, Router};
use crate::hosts::{self, Sampler, Testbed};
use crate::measure::{HostUse, StepOutcome, Trial};
use crate::plan::{Plan, PlannedVariant};
use crate::variables::{self, Values};

/// How long a process may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Hosts(#[from] hosts::Error),
    #[error(transparent)]
    Process(#[from] hosts::ProcessError),
    #[error("the process {name} has ended: {stderr}")]
    Ended { name: String, stderr: String },
    #[error("the step {name} failed: {stderr}")]
    Step { name: String, stderr: String },
    #[error("the step {name} printed no JSON: {error}")]
    Json { name: String, error: serde_json::Error },
    #[error("the router {router} joins no two hosts")]
    Unjoined { router: String },
    #[error(
        "the round trip through the router {router} to {address} is {measured_ms:.2} ms and not {set_ms:.2} ms: other \
         programs keep the processors of this machine busy"
    )]
    Delay { router: String, address: IpAddr, set_ms: f64, measured_ms: f64 },
}

/// The hosts of a trial, with its processes running.
pub(super) struct RunningTrial<'a> {
    plan: &'a Plan,
    places: &'a Places,
    variant: &'a PlannedVariant,
    testbed: Testbed,
    /// In the order of their start.
    running: Vec<Running<'a>>,
    values: Values,
    /// The directory of configurations and output.
    folder: PathBuf,
    commands: Vec<String>,
}

struct Running<'a> {
    process: &'a Process,
    program: hosts::Process,
}

impl<'a> RunningTrial<'a> {
    /// Makes the hosts, and starts the processes one after the other.
    pub(super) fn set_up(
        plan: &'a Plan,
        places: &'a Places,
        groups: &Groups,
        variant: &'a PlannedVariant,
        round: u32,
    ) -> Result<Self, TrialError> {
        let folder = places.work.join("trials").join(format!("{}-{round}", variant.key.replace('/', "-")));
        create_dir(&folder)?;
        let experiment = plan.experiment();
        let delaying = |router: &Router| router_command(router, plan.options.seed);
        let testbed = Testbed::new(&experiment.networks, &experiment.hosts, &experiment.routers, groups, &delaying)?;
        let values = variant.values.clone();
        let running = Vec::new();
        let mut trial = Self { plan, places, variant, testbed, running, values, folder, commands: Vec::new() };
        for process in &variant.processes {
            trial.start(process)?;
        }
        Ok(trial)
    }

    fn start(&mut self, process: &'a Process) -> Result<(), TrialError> {
        let place = format!("the process {}", process.name);
        let directory = self.folder.join(&process.name);
        create_dir(&directory)?;
        let mut values = self.values.clone();
        values.insert("dir".to_owned(), directory.display().to_string());
        variables::add(&mut values, &process.vars);
        write_templates(self.plan, &process.templates, &values, &directory)?;
        let command = self.command(&process.host, &process.run, &values, &place)?;
        let [output, errors] = ["out", "err"].map(|suffix| self.folder.join(format!("{}.{suffix}", process.name)));
        let mut program = hosts::Process::spawn(command, &output, &errors)?;
        let ready = process.ready.iter().map(|ready| self.quiet_command(&process.host, ready, &values, &place));
        let ready = ready.collect::<Result<Vec<_>, _>>()?;
        program.wait_ready(&process.name, ready, READY_MAX)?;
        self.values.insert(format!("pid.{}", process.name), program.id().to_string());
        self.running.push(Running { process, program });
        Ok(())
    }

    /// How its networks differ from those of the experiment.
    pub(super) fn deviation(&self) -> Option<String> {
        self.testbed.deviation()
    }

    /// Runs the steps, then ends all processes.
    pub(super) fn take(&mut self) -> Result<Trial, TrialError> {
        let hosts = &self.plan.experiment().hosts;
        let used = |testbed: &Testbed| -> Result<BTreeMap<String, Duration>, hosts::Error> {
            hosts.iter().map(|host| Ok((host.name.clone(), testbed.host(&host.name)?.used()?))).collect()
        };
        let before = used(&self.testbed)?;
        let started = Instant::now();
        let sampler = Sampler::start(&self.testbed);
        let steps = self.run_steps(started);
        let elapsed_s = started.elapsed().as_secs_f64();
        let mut seen = sampler.finish();
        let steps = steps?;
        let after = used(&self.testbed)?;
        let hosts = hosts.iter().map(|host| {
            let seconds = (after[&host.name].saturating_sub(before[&host.name])).as_secs_f64();
            let points = seen.hosts.remove(&host.name).unwrap_or_default();
            (host.name.clone(), HostUse { seconds, elapsed_s, quota: host.cpu, points })
        });
        let hosts = hosts.collect();
        let lines = self.end()?;
        Ok(Trial { steps, lines, hosts, speed: seen.speed })
    }

    fn run_steps(&mut self, started: Instant) -> Result<BTreeMap<String, StepOutcome>, TrialError> {
        let mut steps = steps::Steps::default();
        for step in &self.variant.steps {
            let place = format!("the step {}", step.name);
            let command = self.command(&step.host, &step.step.run, &self.values.clone(), &place)?;
            steps.add(step, command, &self.folder);
        }
        steps.run(started, || self.check_processes())
    }

    fn check_processes(&mut self) -> Result<(), TrialError> {
        for running in self.running.iter_mut().filter(|running| !running.process.may_end) {
            if running.program.has_ended().is_some() {
                let stderr = running.program.errors();
                return Err(TrialError::Ended { name: running.process.name.clone(), stderr });
            }
        }
        Ok(())
    }

    /// Ends the processes, the last one first. Returns the JSON lines that they have printed.
    fn end(&mut self) -> Result<BTreeMap<String, Vec<serde_json::Value>>, TrialError> {
        let mut lines = BTreeMap::new();
        while let Some(mut running) = self.running.pop() {
            running.program.stop();
            let path = self.folder.join(format!("{}.out", running.process.name));
            let output = File::open(&path).map_err(|error| file_error("read", &path, error))?;
            let parsed = BufReader::new(output).split(b'\n').map_while(Result::ok);
            let parsed = parsed.filter_map(|line| serde_json::from_slice(&line).ok());
            lines.insert(running.process.name.clone(), parsed.collect());
        }
        Ok(lines)
    }

    /// What it has started, with the names of its hosts.
    pub(super) fn commands(&mut self) -> Vec<String> {
        std::mem::take(&mut self.commands)
    }

    /// A command on a host, which the result names.
    fn command(&mut self, host: &str, run: &str, values: &Values, place: &str) -> Result<Command, TrialError> {
        let words = variables::words(run, values).map_err(in_place(place))?;
        self.commands.push(format!("{}, {host}: {}", self.variant.key, variables::shown(&words)));
        self.quiet_command(host, run, values, place)
    }

    fn quiet_command(&self, host: &str, run: &str, values: &Values, place: &str) -> Result<Command, TrialError> {
        let words = variables::words(run, values).map_err(in_place(place))?;
        let no_words = || file_error("run the command of", Path::new(place), io::Error::other("it has no words"));
        let (first, rest) = words.split_first().ok_or_else(no_words)?;
        let mut command = self.testbed.host(host)?.command(first);
        command.args(rest).current_dir(&self.places.work);
        Ok(command)
    }
}

/// The command of a router's delaying process.
fn router_command(router: &Router, seed: u64) -> Vec<String> {
    let ms = |duration: Duration| watari_values::duration::text(duration);
    let mut words: Vec<String> = ["watari", "lab", "router"].map(str::to_owned).into();
    words.extend(["--round-trip".to_owned(), ms(router.round_trip), "--jitter".to_owned(), ms(router.jitter)]);
    words.extend(["--loss".to_owned(), router.loss.to_string(), "--seed".to_owned(), seed.to_string()]);
    if let Some(rate) = router.rate {
        words.extend(["--rate".to_owned(), rate.to_string()]);
    }
    words
}
