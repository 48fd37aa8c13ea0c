//! What a run has measured: `trials.json`. All figures and verdicts come from it. Beside it is what it ran: the
//! experiment's file and its templates, as they were then.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{FileError, file_error, write};
use crate::catalogue::{self, Found};
use crate::measure::Trial;
use crate::plan::{Options, Plan};
use crate::result::Delay;

const NAME: &str = "trials.json";
/// The folder of the experiment.
const EXPERIMENT: &str = "experiment";

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Measured {
    /// With the number of rounds.
    pub(super) options: Options,
    /// RFC 3339, in UTC.
    pub(super) started: String,
    pub(super) seconds: f64,
    pub(super) commands: Vec<String>,
    pub(super) delays: Vec<Delay>,
    /// The machine, and the versions of all programs.
    pub(super) versions: BTreeMap<String, String>,
    /// How this run deviates from its file.
    pub(super) deviations: Vec<String>,
    pub(super) trials: Vec<Taken>,
}

/// A trial of a variant.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Taken {
    pub(super) variant: String,
    pub(super) round: u32,
    pub(super) trial: Trial,
}

impl Measured {
    pub(super) fn write(&self, plan: &Plan, folder: &Path) -> Result<(), FileError> {
        let path = folder.join(NAME);
        let json = serde_json::to_vec(self).map_err(|error| file_error("write", &path, error.into()))?;
        write(&path, &json)?;
        let experiment = folder.join(EXPERIMENT);
        write(&experiment.join(plan.found.file()), plan.found.text.as_bytes())?;
        plan.templates.iter().try_for_each(|(name, text)| write(&experiment.join(name), text.as_bytes()))
    }

    pub(super) fn read(folder: &Path) -> Result<Self, FileError> {
        let path = folder.join(NAME);
        let failed = |error: io::Error| file_error("read", &path, error);
        serde_json::from_slice(&fs::read(&path).map_err(failed)?).map_err(|error| failed(error.into()))
    }

    /// The experiment as it was, of those with the file of `now`.
    pub(super) fn experiment(folder: &Path, now: &Found) -> Result<Found, catalogue::Error> {
        catalogue::find(&folder.join(EXPERIMENT).join(now.file()).display().to_string())
    }
}
