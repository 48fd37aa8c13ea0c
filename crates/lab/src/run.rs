//! A run: the trials of all variants in turn, inside the sandbox, and the result that follows from what they measured.

mod files;
mod findings;
mod measured;
mod programs;
mod progress;
mod trial;
mod versions;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use watari_values::size::Size;

use crate::catalogue::{self, Found};
use crate::commands;
use crate::control_group::Groups;
use crate::experiment::File;
use crate::hosts;
use crate::measure;
use crate::output;
use crate::plan::{self, Options, Plan};
use crate::result::{Delay, RunResult};
use crate::variables;
use files::{FileError, create_dir, file_error, in_place, move_files, write, write_templates};
use measured::{Measured, Taken};
use progress::Progress;
pub use trial::TrialError;

/// Files are made in pieces of this size.
const PIECE_LEN: u64 = 1 << 20;

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
    #[error(
        "this machine lacks programs that the experiment runs: {}; `scripts/deps lab` installs them on Debian",
        .0.join(", ")
    )]
    Programs(Vec<String>),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the preparing command \"{command}\" failed: {stderr}")]
    Prepare { command: String, stderr: String },
    #[error(transparent)]
    Hosts(#[from] hosts::Error),
    #[error("variant {variant}, round {round}: {error}")]
    Trial { variant: String, round: u32, error: TrialError },
    #[error("{place}: {error}")]
    Measure { place: String, error: measure::Error },
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error(transparent)]
    Plan(#[from] plan::Error),
    #[error(transparent)]
    Catalogue(#[from] catalogue::Error),
    #[error("the {part} of the experiment {name} have changed since this run: run it again")]
    Changed { name: String, part: &'static str },
}

/// Runs all trials, and writes what they measured, and the result. Prints progress on standard error.
pub fn run(plan: &Plan, places: &Places, groups: &Groups) -> Result<(), Error> {
    let measured = measure(plan, places, groups)?;
    let result = findings::result(plan, &measured)?;
    replace(&places.folder, |folder| {
        measured.write(plan, folder)?;
        write_result(plan, &measured, result, folder).map(drop)
    })
}

/// Computes the result of a finished run again, from what its trials measured, by the figures, ratios and texts that the
/// experiment has now. It is an error if something else has changed.
pub fn evaluate(found: Found, folder: &Path) -> Result<RunResult, Error> {
    let measured = Measured::read(folder)?;
    let then = Plan::new(Measured::experiment(folder, &found)?, measured.options.clone(), folder)?;
    let now = Plan::new(found, measured.options.clone(), folder)?;
    if let Some(part) = now.difference(&then) {
        return Err(Error::Changed { name: now.experiment().name.clone(), part });
    }
    let result = findings::result(&now, &measured)?;
    replace(folder, |folder| write_result(&now, &measured, result, folder))
}

/// Lets `write` write files to a directory, and then moves them to `folder`. If a file cannot be written, or this process
/// ends before, the folder stays as it was.
fn replace<T>(folder: &Path, write: impl FnOnce(&Path) -> Result<T, Error>) -> Result<T, Error> {
    create_dir(folder)?;
    let directory = tempfile::Builder::new().prefix(".new-").tempdir_in(folder);
    let directory = directory.map_err(|error| file_error("write to", folder, error))?;
    let written = write(directory.path());
    // After another error all files are there, but for a plot.
    if let Err(Error::File(_) | Error::Output(output::Error::Write(..))) = &written {
        return written;
    }
    output::remove_pictures(folder);
    move_files(directory.path(), folder)?;
    written
}

fn measure(plan: &Plan, places: &Places, groups: &Groups) -> Result<Measured, Error> {
    let missing = programs::missing(plan);
    if !missing.is_empty() {
        return Err(Error::Programs(missing));
    }
    let started = (Instant::now(), OffsetDateTime::now_utc());
    let mut progress = Progress::new(plan.rounds * plan.variants.len() as u32);
    let mut commands = Vec::new();
    hosts::prepare_sandbox(&places.work.join("hosts"))?;
    prepare(plan, places, &mut commands)?;
    let mut trials = Vec::new();
    let mut delays: Vec<Delay> = Vec::new();
    let mut deviations: Vec<String> = groups.deviation().into_iter().collect();
    for round in 1..=plan.rounds {
        for variant in &plan.variants {
            progress.begin(&variant.title, round);
            let failed = |error| Error::Trial { variant: variant.key.clone(), round, error };
            let is_first = round == 1;
            let mut trial = trial::RunningTrial::set_up(plan, places, groups, variant, round).map_err(failed)?;
            if delays.is_empty() {
                delays = trial.verify_delays().map_err(failed)?;
            }
            if trials.is_empty() {
                deviations.extend(trial.deviation());
            }
            let taken = trial.take().map_err(failed)?;
            if is_first {
                commands.extend(trial.commands());
            }
            trials.push(Taken { variant: variant.key.clone(), round, trial: taken });
            progress.end();
        }
    }
    progress.finish();
    deviations.extend(delays.iter().filter_map(Delay::deviation));
    Ok(Measured {
        options: Options { rounds: Some(plan.rounds), ..plan.options.clone() },
        started: started.1.format(&Rfc3339).unwrap_or_default(),
        seconds: started.0.elapsed().as_secs_f64(),
        commands,
        delays,
        versions: versions::all(),
        deviations,
        trials,
    })
}

fn write_result(plan: &Plan, measured: &Measured, mut result: RunResult, folder: &Path) -> Result<RunResult, Error> {
    let (cpu, ternary) = (findings::cpu_series(&measured.trials), findings::ternary(plan, &measured.trials));
    output::write_run(folder, &mut result, &cpu, &plan.experiment().plots, &ternary)?;
    Ok(result)
}

/// Makes the files of the run, and runs the commands that prepare it.
fn prepare(plan: &Plan, places: &Places, commands: &mut Vec<String>) -> Result<(), Error> {
    let experiment = plan.experiment();
    for (number, file) in (0..).zip(&experiment.files) {
        make_file(&places.work, file, plan.options.seed.wrapping_add(number))?;
    }
    write_templates(plan, &experiment.templates, &plan.values, &places.work)?;
    for command in &experiment.prepare {
        let words = variables::words(command, &plan.values).map_err(in_place(command))?;
        commands.push(variables::shown(&words));
        run_once(&words, places)?;
    }
    Ok(())
}

fn make_file(work: &Path, file: &File, seed: u64) -> Result<(), Error> {
    let Size(size) = file.size.parse().expect("the plan has checked it");
    let path = work.join(&file.path);
    write(&path, &[])?;
    let failed = |error| file_error("write", &path, error);
    let mut output = fs::File::options().append(true).open(&path).map_err(failed)?;
    let mut random = StdRng::seed_from_u64(seed);
    let mut left = size;
    while left > 0 {
        let mut piece = vec![0; left.min(PIECE_LEN) as usize];
        random.fill_bytes(&mut piece);
        output.write_all(&piece).map_err(failed)?;
        left -= piece.len() as u64;
    }
    Ok(())
}

fn run_once(words: &[String], places: &Places) -> Result<(), Error> {
    let none = || Error::Prepare { command: String::new(), stderr: "it has no words".to_owned() };
    let (program, arguments) = words.split_first().ok_or_else(none)?;
    let ran = commands::run(Command::new(program).args(arguments).current_dir(&places.work));
    let ran = ran.map_err(|error| file_error("run", Path::new(program), error))?;
    ran.map(drop).map_err(|stderr| Error::Prepare { command: words.join(" "), stderr })
}
