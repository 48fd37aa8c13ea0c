//! The steps of a trial: each starts at its time, and after the step that it names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::TrialError;
use crate::commands;
use crate::measure::StepOutcome;
use crate::plan::PlannedStep;
use crate::run::files::{FileError, file_error};

/// How often the end of steps is looked for.
const POLL: Duration = Duration::from_millis(5);
/// How long a step may take.
const STEP_MAX: Duration = Duration::from_mins(20);

#[derive(Default)]
pub(super) struct Steps<'a> {
    waiting: Vec<(&'a PlannedStep, Command, StepFiles)>,
    running: Vec<RunningStep<'a>>,
    ended: BTreeMap<String, StepOutcome>,
}

struct RunningStep<'a> {
    step: &'a PlannedStep,
    child: Child,
    started_s: f64,
    files: StepFiles,
}

/// The files that a step writes.
struct StepFiles {
    output: PathBuf,
    errors: PathBuf,
}

impl<'a> Steps<'a> {
    pub(super) fn add(&mut self, step: &'a PlannedStep, command: Command, folder: &Path) {
        let [output, errors] = ["out", "err"].map(|suffix| folder.join(format!("step-{}.{suffix}", step.name)));
        self.waiting.push((step, command, StepFiles { output, errors }));
    }

    /// Runs all steps. Calls `check` again and again meanwhile. If a step or a check fails, the others end.
    pub(super) fn run(
        mut self,
        started: Instant,
        mut check: impl FnMut() -> Result<(), TrialError>,
    ) -> Result<BTreeMap<String, StepOutcome>, TrialError> {
        while !self.waiting.is_empty() || !self.running.is_empty() {
            self.start_due(started)?;
            self.collect(started)?;
            check()?;
            sleep(POLL);
        }
        Ok(std::mem::take(&mut self.ended))
    }

    fn start_due(&mut self, started: Instant) -> Result<(), TrialError> {
        let is_due = |planned: &PlannedStep, ended: &BTreeMap<String, StepOutcome>| {
            let step = &planned.step;
            started.elapsed() >= step.at && step.after.as_ref().is_none_or(|after| ended.contains_key(after))
        };
        while let Some(index) = self.waiting.iter().position(|(step, ..)| is_due(step, &self.ended)) {
            let (step, mut command, files) = self.waiting.remove(index);
            let started_s = started.elapsed().as_secs_f64();
            let child =
                command.stdin(Stdio::null()).stdout(create(&files.output)?).stderr(create(&files.errors)?).spawn();
            let child = child.map_err(|error| file_error("run", Path::new(&step.step.run), error))?;
            self.running.push(RunningStep { step, child, started_s, files });
        }
        Ok(())
    }

    fn collect(&mut self, started: Instant) -> Result<(), TrialError> {
        let mut index = 0;
        while index < self.running.len() {
            let status = self.running[index].child.try_wait();
            let status =
                status.map_err(|error| file_error("wait for", Path::new(&self.running[index].step.step.run), error))?;
            let Some(status) = status else {
                self.running[index].check_time(started)?;
                index += 1;
                continue;
            };
            let step = self.running.remove(index);
            let outcome = step.outcome(status, started.elapsed().as_secs_f64())?;
            self.ended.insert(step.step.name.clone(), outcome);
        }
        Ok(())
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        for step in &mut self.running {
            let _ = step.child.kill();
            let _ = step.child.wait();
        }
    }
}

impl RunningStep<'_> {
    fn check_time(&self, started: Instant) -> Result<(), TrialError> {
        if started.elapsed().as_secs_f64() - self.started_s <= STEP_MAX.as_secs_f64() {
            return Ok(());
        }
        Err(TrialError::Step { name: self.step.name.clone(), stderr: format!("it runs longer than {STEP_MAX:?}") })
    }

    fn outcome(&self, status: ExitStatus, ended_s: f64) -> Result<StepOutcome, TrialError> {
        let name = || self.step.name.clone();
        if !status.success() && !self.step.step.may_fail {
            let stderr = format!("{status}: {}", commands::end_of_file(&self.files.errors));
            return Err(TrialError::Step { name: name(), stderr });
        }
        let mut json = serde_json::Value::Null;
        if self.step.step.load || self.step.step.json {
            let path = &self.files.output;
            let output = fs::read(path).map_err(|error| file_error("read", path, error))?;
            json = match serde_json::from_slice(&output) {
                Ok(json) => json,
                // A step that may fail does not always print something then.
                Err(_) if !status.success() => serde_json::Value::Null,
                Err(error) => return Err(TrialError::Json { name: name(), error }),
            };
        }
        Ok(StepOutcome { started_s: self.started_s, ended_s, is_load: self.step.step.load, json })
    }
}

fn create(path: &Path) -> Result<Stdio, FileError> {
    File::create(path).map(Stdio::from).map_err(|error: io::Error| file_error("create", path, error))
}
