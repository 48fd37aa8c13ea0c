//! Why a server does not run.

use std::io;

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program is not installed.
    #[error("{program} is missing: `scripts/deps test` installs it")]
    Missing {
        /// The program, which is not in `PATH` and `/usr/sbin`.
        program: &'static str,
    },
    /// The system refused something.
    #[error("{program}: {error}")]
    Io {
        program: &'static str,
        #[source]
        error: io::Error,
    },
    /// The server ended, most likely because of an error in our configuration.
    #[error("{program} ended at once:\n{output}")]
    Ended { program: &'static str, output: String },
    /// The server does not answer.
    #[error("{program} does not answer:\n{output}")]
    Silent { program: &'static str, output: String },
}
