//! `watari completions`: completions for shells.

use clap::Args;
use clap_complete::Shell;

use super::print::print;
use crate::failure::Failure;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  watari completions bash > /etc/bash_completion.d/watari
  watari completions zsh > ~/.zfunc/_watari
  watari completions fish > ~/.config/fish/completions/watari.fish";

impl Completions {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        // `generate` panics if it cannot write. A vector takes all.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command_line(), "watari", &mut script);
        print(String::from_utf8_lossy(&script))
    }
}
