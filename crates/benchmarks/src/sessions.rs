//! Sessions that are resumed: at what price, from how many, and in how large a cluster.

mod lookups;
mod resumed;
mod sharing;

use crate::Scale;
use crate::failure::Failure;
use crate::report::Report;
use crate::site::Site;

/// Measures handshakes that resume, at one server and in a cluster, and lookups; computes what sharing takes.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    resumed::measure(site, scale, report)?;
    lookups::measure(scale, report)?;
    report.add_table(sharing::TITLE, sharing::table()?);
    Ok(())
}
