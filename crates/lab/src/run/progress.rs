//! The progress of a run, on standard error: a bar in a terminal, or a line for each trial. Both have the remaining time.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

pub(super) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    started: Instant,
    trials: u32,
    ended: u32,
}

impl Progress {
    pub(super) fn new(trials: u32) -> Self {
        let is_terminal = stderr().is_terminal();
        let bar = if is_terminal { ProgressBar::new(trials.into()) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed}  {msg}");
        bar.set_style(style.expect("the template is valid"));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, is_terminal, started: Instant::now(), trials, ended: 0 }
    }

    pub(super) fn begin(&self, variant: &str, round: u32) {
        let left = remaining(self.started.elapsed(), self.ended, self.trials);
        let left = left.map_or_else(String::new, |left| format!("{} left: ", HumanDuration(left)));
        let message = format!("{left}{variant}, round {round}");
        if !self.is_terminal {
            // A reader that has gone does not end the run.
            let _ = writeln!(stderr(), "{}/{}: {message}", self.ended + 1, self.trials);
        }
        self.bar.set_message(message);
    }

    pub(super) fn end(&mut self) {
        self.ended += 1;
        self.bar.inc(1);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The time of the trials that are left, if they take as long as those that have ended. None before the first has.
fn remaining(elapsed: Duration, ended: u32, trials: u32) -> Option<Duration> {
    elapsed.checked_div(ended).map(|each| each * trials.saturating_sub(ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_take_as_long_as_those_before() {
        assert_eq!(remaining(Duration::from_secs(9), 0, 30), None);
        assert_eq!(remaining(Duration::from_secs(225), 5, 30), Some(Duration::from_secs(45 * 25)));
        assert_eq!(remaining(Duration::from_secs(9), 3, 3), Some(Duration::ZERO));
    }
}
