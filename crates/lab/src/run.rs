//! A run: the trials of all variants in turn, inside the sandbox, and the result.

mod files;
mod findings;
mod progress;
mod trial;
mod versions;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use watari_values::size::Size;

use crate::control_group::Groups;
use crate::experiment::File;
use crate::hosts;
use crate::measure;
use crate::output;
use crate::plan::Plan;
use crate::result::Delay;
use crate::variables;
use files::{FileError, file_error, in_place, write, write_templates};
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
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the preparing command \"{command}\" failed: {stderr}")]
    Prepare { command: String, stderr: String },
    #[error("the size {size} of the file {path} is not one, such as 5120, 4KiB or 1GB")]
    Size { path: String, size: String },
    #[error(transparent)]
    Hosts(#[from] hosts::Error),
    #[error("variant {variant}, round {round}: {error}")]
    Trial { variant: String, round: u32, error: TrialError },
    #[error("{place}: {error}")]
    Measure { place: String, error: measure::Error },
    #[error(transparent)]
    Output(#[from] output::Error),
}

/// Runs all trials, and writes the result. Prints progress on standard error.
pub fn run(plan: &Plan, places: &Places, groups: &Groups) -> Result<(), Error> {
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
    Ok(())
}

/// Makes the files of the run, and runs the commands that prepare it.
fn prepare(plan: &Plan, places: &Places, commands: &mut Vec<String>) -> Result<(), Error> {
    let experiment = plan.experiment();
    for (number, file) in (0..).zip(&experiment.files) {
        make_file(&places.work, file, plan.options.seed.wrapping_add(number))?;
    }
    write_templates(&plan.found, &experiment.templates, &plan.values, &places.work)?;
    for command in &experiment.prepare {
        let words = variables::words(command, &plan.values).map_err(in_place(command))?;
        commands.push(words.join(" "));
        run_once(&words, places)?;
    }
    Ok(())
}

fn make_file(work: &Path, file: &File, seed: u64) -> Result<(), Error> {
    let wrong = |_| Error::Size { path: file.path.clone(), size: file.size.clone() };
    let Size(size) = file.size.parse().map_err(wrong)?;
    let mut contents = vec![0; size as usize];
    StdRng::seed_from_u64(seed).fill_bytes(&mut contents);
    Ok(write(&work.join(&file.path), &contents)?)
}

fn run_once(words: &[String], places: &Places) -> Result<(), Error> {
    let output = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(&places.work)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| file_error("run", Path::new(&words[0]), error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Prepare { command: words.join(" "), stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}
