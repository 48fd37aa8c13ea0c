//! Resumed sessions: the cost of handshakes, of lookups among many sessions, and of sharing in a large cluster.

mod lookups;
mod resumed;
mod sharing;

use crate::Scale;
use crate::failure::Failure;
use crate::report::Report;
use crate::site::Site;

/// Measures handshakes that resume, at one server and in a cluster, and lookups. Computes the cost of sharing.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    resumed::measure(site, scale, report)?;
    lookups::measure(scale, report)?;
    report.add_table(sharing::TITLE, sharing::table()?);
    Ok(())
}
