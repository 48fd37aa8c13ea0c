//! The report of `watari bench capacity`: the result of a search, and the prediction that rests on it.

use std::fmt;

use serde::Serialize;
use watari_bench_report::summary::Run;

use super::found::Found;
use super::page::page;
use crate::predict::Prediction;

/// The results, which are also the JSON.
#[derive(Serialize)]
pub struct CapacityReport {
    pub run: Run,
    /// `null`: the capacity was given.
    pub search: Option<Found>,
    /// `null`: the load of the site is not known.
    pub prediction: Option<Prediction>,
}

impl CapacityReport {
    /// The results as one self-contained page of HTML. `None` without a search, which has the curve.
    pub fn page(&self) -> Option<String> {
        let found = self.search.as_ref()?;
        Some(page(&self.run, &found.curve, &found.finding, &self.to_string()))
    }
}

impl fmt::Display for CapacityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(found) = &self.search {
            write!(f, "\n{found}")?;
        }
        match (&self.search, &self.prediction) {
            (Some(_), Some(prediction)) => write!(f, "\n{prediction}"),
            (None, Some(prediction)) => write!(f, "{prediction}"),
            (_, None) => Ok(()),
        }
    }
}
