//! What a run has measured: `trials.json`. All figures and verdicts come from it. Beside it is the experiment's file as it
//! was then, `experiment.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{FileError, file_error, write};
use crate::measure::Trial;
use crate::plan::Options;
use crate::result::Delay;

const NAME: &str = "trials.json";
const EXPERIMENT: &str = "experiment.toml";

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
    pub(super) fn write(&self, experiment: &str, folder: &Path) -> Result<(), FileError> {
        let path = folder.join(NAME);
        let json = serde_json::to_vec(self).map_err(|error| file_error("write", &path, error.into()))?;
        write(&path, &json)?;
        write(&folder.join(EXPERIMENT), experiment.as_bytes())
    }

    /// Also the text of the experiment's file.
    pub(super) fn read(folder: &Path) -> Result<(Self, String), FileError> {
        let path = folder.join(NAME);
        let failed = |error: io::Error| file_error("read", &path, error);
        let measured =
            serde_json::from_slice(&fs::read(&path).map_err(failed)?).map_err(|error| failed(error.into()))?;
        let path = folder.join(EXPERIMENT);
        let experiment = fs::read_to_string(&path).map_err(|error| file_error("read", &path, error))?;
        Ok((measured, experiment))
    }
}
