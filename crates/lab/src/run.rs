//! A run: the trials of all variants in turn, inside the sandbox, and the result.

mod findings;
mod progress;
mod trial;
mod versions;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::catalogue;
use crate::control_group::Groups;
use crate::experiment::File;
use crate::hosts;
use crate::measure;
use crate::output;
use crate::plan::Plan;
use crate::result::{Delay, RunResult};
use crate::variables;
use progress::Progress;
pub use trial::TrialError;

/// Where a run works, and what it runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Places {
    /// The directory of configurations, keys and output of processes.
    pub work: PathBuf,
    /// The folder of the result.
    pub folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {doing}: {error}")]
    File { doing: String, error: io::Error },
    #[error("{place}: {error}")]
    Variable { place: String, error: variables::Error },
    #[error(transparent)]
    Catalogue(#[from] catalogue::Error),
    #[error("the preparing command \"{command}\" failed: {stderr}")]
    Prepare { command: String, stderr: String },
    #[error("the size {0} of a file is not one, such as 5120, 4KiB or 1GB")]
    Size(String),
    #[error(transparent)]
    Hosts(#[from] hosts::Error),
    #[error("variant {variant}, round {round}: {error}")]
    Trial { variant: String, round: u32, error: TrialError },
    #[error("{place}: {error}")]
    Measure { place: String, error: measure::Error },
    #[error(
        "the round trip through the router {router} is {measured_ms:.2} ms, not {set_ms:.2} ms: the machine is too busy for this experiment"
    )]
    Delay { router: String, set_ms: f64, measured_ms: f64 },
    #[error(transparent)]
    Output(#[from] output::Error),
}

/// Runs all trials, and writes the result. Prints progress on standard error.
pub fn run(plan: &Plan, places: &Places, groups: &Groups) -> Result<RunResult, Error> {
    let started = (Instant::now(), time::OffsetDateTime::now_utc());
    let mut progress = Progress::new(plan.variants.len() * plan.rounds as usize);
    let mut commands = Vec::new();
    hosts::prepare_sandbox(&places.work.join("hosts"))?;
    prepare(plan, places, &mut commands)?;
    let mut trials = Vec::new();
    let mut delays: Vec<Delay> = Vec::new();
    for round in 1..=plan.rounds {
        for variant in &plan.variants {
            progress.begin(&variant.title, round);
            let failed = |error| Error::Trial { variant: variant.key.clone(), round, error };
            let is_first = round == 1;
            let mut trial = trial::RunningTrial::set_up(plan, places, groups, variant, round).map_err(failed)?;
            if delays.is_empty() {
                delays = trial.verify_delays().map_err(failed)?;
            }
            let taken = trial.take().map_err(failed)?;
            if is_first {
                commands.extend(trial.commands());
            }
            trials.push(findings::Taken { variant: variant.key.clone(), round, trial: taken });
            progress.end();
        }
    }
    progress.finish();
    let mut result = findings::result(plan, &trials, started)?;
    result.commands = commands;
    result.deviations.extend(groups.deviation());
    result.deviations.extend(delays.iter().filter_map(Delay::deviation));
    result.delays = delays;
    result.versions = versions::all();
    let (cpu, ternary) = (findings::cpu_series(&trials), findings::ternary(plan, &trials));
    output::write_run(&places.folder, &mut result, &cpu, &plan.experiment().plots, &ternary)?;
    Ok(result)
}

/// Makes the files of the run, and runs the commands that prepare it.
fn prepare(plan: &Plan, places: &Places, commands: &mut Vec<String>) -> Result<(), Error> {
    let experiment = plan.experiment();
    for (number, file) in (0..).zip(&experiment.files) {
        make_file(&places.work, file, plan.options.seed.wrapping_add(number))?;
    }
    for (file, template) in &experiment.templates {
        let text = variables::fill(&plan.found.template(template)?, &plan.values);
        let text = text.map_err(|error| Error::Variable { place: template.clone(), error })?;
        write(&places.work.join(file), text.as_bytes())?;
    }
    for command in &experiment.prepare {
        let words = variables::words(command, &plan.values);
        let words = words.map_err(|error| Error::Variable { place: command.clone(), error })?;
        commands.push(words.join(" "));
        run_once(&words, places)?;
    }
    Ok(())
}

fn make_file(work: &Path, file: &File, seed: u64) -> Result<(), Error> {
    let size = file.size.parse::<bytesize::ByteSize>().map_err(|_| Error::Size(file.size.clone()))?;
    let mut contents = vec![0; usize::try_from(size.as_u64()).map_err(|_| Error::Size(file.size.clone()))?];
    StdRng::seed_from_u64(seed).fill_bytes(&mut contents);
    write(&work.join(&file.path), &contents)
}

fn run_once(words: &[String], places: &Places) -> Result<(), Error> {
    let output = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(&places.work)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::File { doing: format!("run {}", words[0]), error })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Prepare { command: words.join(" "), stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}

fn write(path: &Path, contents: &[u8]) -> Result<(), Error> {
    let failed = |error| Error::File { doing: format!("write {}", path.display()), error };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    fs::write(path, contents).map_err(failed)
}
