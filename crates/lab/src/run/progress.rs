//! The progress of a run, on standard error: a bar with the remaining time in a terminal, or a line for each trial.

use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

pub(super) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    trials: usize,
    begun: usize,
}

impl Progress {
    pub(super) fn new(trials: usize) -> Self {
        let is_terminal = stderr().is_terminal();
        let bar = if is_terminal { ProgressBar::new(trials as u64) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed} (remaining: {eta})  {msg}");
        bar.set_style(style.expect("the template is valid"));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, is_terminal, trials, begun: 0 }
    }

    pub(super) fn begin(&mut self, variant: &str, round: u32) {
        self.begun += 1;
        let message = format!("{variant}, round {round}");
        if !self.is_terminal {
            eprintln!("{}/{}: {message}", self.begun, self.trials);
        }
        self.bar.set_message(message);
    }

    pub(super) fn end(&self) {
        self.bar.inc(1);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
