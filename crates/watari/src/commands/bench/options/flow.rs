//! Scripted users with several requests.

use std::path::PathBuf;

use clap::Args;
use watari_bench_engine::plan::Work;

use super::Target;
use crate::failure::Failure;

/// Scripted users with several requests
#[derive(Args)]
#[command(next_help_heading = "Flows")]
pub(crate) struct Flow {
    /// A file of the steps of users, which can use values from responses, such as examples/flow.toml. Its URIs are
    /// relative to the URL
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "method", "headers", "body", "pipeline"])]
    flow: Option<PathBuf>,
    /// The seed of random choices in a flow
    #[arg(long, value_name = "SEED", requires = "flow", default_value_t = 1)]
    seed: u64,
}

impl Flow {
    /// The flow if one is given, else the requests.
    pub(crate) fn work(&self, target: &Target) -> Result<Work, Failure> {
        let Some(file) = &self.flow else { return target.requests().map(Work::from) };
        Work::flow(file, target.url()?, self.seed).map_err(|error| Failure::Usage(error.to_string()))
    }
}
