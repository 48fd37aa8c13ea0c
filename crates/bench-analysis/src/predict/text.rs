//! A prediction as text for the terminal.

use std::fmt;

use super::{Prediction, Window};

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Predicted load")?;
        for window in Window::ALL {
            let (name, requests) = (window.name(), self.requests_per_s.of(window));
            writeln!(f, "  busiest {name:<8} {requests:>12.1} requests/s")?;
        }
        if let Some(bytes) = self.bytes_per_s {
            writeln!(f, "  busiest minute   {:>12.3} MB/s", bytes / 1e6)?;
        }
        if let Some(handshakes) = self.handshakes_per_s {
            writeln!(f, "  at the peak      {handshakes:>12.1} full TLS handshakes/s")?;
        }
        let Self { peak_per_s, usable_per_s, serving, spare, servers, .. } = self;
        writeln!(f, "\nServers: {servers}")?;
        writeln!(f, "  {serving} for {peak_per_s:.1} requests/s at {usable_per_s:.1} each, {spare} spare")?;
        self.write_assumptions(f)
    }
}

impl Prediction {
    fn write_assumptions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |cell: fn(&super::Assumption) -> &str| {
            self.assumptions.iter().map(|assumption| cell(assumption).chars().count()).max().unwrap_or(0)
        };
        let (what_width, value_width) = (width(|one| &one.what), width(|one| &one.value));
        writeln!(f, "\nAssumptions")?;
        for super::Assumption { what, value, source } in &self.assumptions {
            writeln!(f, "  {what:<what_width$}  {value:<value_width$}  ({source})")?;
        }
        Ok(())
    }
}
