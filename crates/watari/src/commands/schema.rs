//! `watari schema`: the JSON schema of node files.

use clap::Args;

use crate::commands::print::print_json;
use crate::config;
use crate::failure::Failure;

/// Print the JSON schema of configuration files of nodes
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Schema;

const EXAMPLES: &str = "\
Example:
  watari schema > node.schema.json

The schema is of draft 2020-12. Editors with Taplo (Even Better TOML) complete and check a file that begins with the
line `#:schema ./node.schema.json`. `watari run --check` checks more: files, and keys that depend on each other.";

impl Schema {
    pub(crate) fn execute() -> Result<(), Failure> {
        print_json(&config::schema())
    }
}
