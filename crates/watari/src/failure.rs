//! How commands fail.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use watari_bench::connection_csv::CsvError;
use watari_bench::fleet;
use watari_bench::make_list::MakeError;
use watari_bench::suites::SuitesError;
use watari_bench::worker::ListenError;
use watari_capture::CaptureError;
use watari_capture::privileges::PrivilegesError;
use watari_pki::PkiError;
use watari_watch::files::FilesError;
use watari_watch::profile::ProfileError;
use watari_watch::pseudonyms::KeyError;
use watari_watch::{alerting, link};

use crate::admin::AskError;
use crate::commands::ctl::Unfulfilled;
use crate::config::ConfigError;
use crate::demo::DemoError;
use crate::node::NodeError;
use crate::output::print_line;

/// A command failed. Its `Display` is one sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Unfulfilled(#[from] Unfulfilled),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error(transparent)]
    MakeList(MakeError),
    #[error(transparent)]
    Csv(#[from] CsvError),
    #[error("{0}")]
    Usage(String),
    #[error("a condition is not met")]
    Expectation,
    #[error(
        "no request succeeded: the summary has their statuses and endings (--ok-status sets the statuses that are success)"
    )]
    Unanswered,
    #[error(transparent)]
    Suites(#[from] SuitesError),
    #[error(transparent)]
    Fleet(#[from] fleet::StartError),
    #[error(transparent)]
    LostWorker(#[from] fleet::LostError),
    #[error("{0} of the workers were lost: the figures lack their last results")]
    Lost(usize),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Privileges(#[from] PrivilegesError),
    #[error("{0}; set --user to another user (root also runs without privileges)")]
    User(PrivilegesError),
    #[error(transparent)]
    AnonymizeKey(#[from] KeyError),
    #[error(transparent)]
    Tell(#[from] alerting::ConfigError),
    #[error(transparent)]
    Notifier(#[from] alerting::StartError),
    #[error(transparent)]
    Reporter(#[from] link::StartError),
    #[error(transparent)]
    Judge(#[from] link::ListenError),
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, io::Error),
    #[error("cannot start: {0}")]
    Start(io::Error),
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    #[error("cannot write {path}: {1}", path = .0.display())]
    File(PathBuf, io::Error),
}

impl From<MakeError> for Failure {
    fn from(error: MakeError) -> Self {
        match error {
            MakeError::Write(error) => Self::Output(error),
            error => Self::MakeList(error),
        }
    }
}

impl Failure {
    /// Prints the failure to the standard error, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_seen_enough() {
            return ExitCode::SUCCESS;
        }
        // A line for each mistake of a configuration.
        self.to_string().lines().for_each(|line| print_line(format_args!("watari: {line}")));
        ExitCode::from(self.code())
    }

    /// Whether the reader of the output has closed it, as in `watari watch pcap FILE | head`. Such a command ends
    /// without a failure.
    fn is_seen_enough(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    fn code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Pki(PkiError::Request(_))
            | Self::MakeList(_)
            | Self::Usage(_)
            | Self::Profile(_)
            | Self::AnonymizeKey(_)
            | Self::Tell(_) => 2,
            Self::Fleet(error) if !matches!(error, fleet::StartError::Worker { .. }) => 2,
            _ => 1,
        }
    }
}
