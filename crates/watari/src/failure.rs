//! How commands fail.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use watari_bench_analysis::capacity::SearchError;
use watari_bench_analysis::make_list::MakeError;
use watari_bench_fleet::fleet::{self, ChooseError};
use watari_bench_fleet::measure::MeasureError;
use watari_bench_fleet::worker::ListenError;
use watari_bench_report::files::WriteError;
use watari_bench_suites::measure::SuitesError;
use watari_capture::CaptureError;
use watari_capture::privileges::PrivilegesError;
use watari_lab::{catalogue, supervisor};
use watari_pki::PkiError;
use watari_watch::files::FilesError;
use watari_watch::profile::ProfileError;
use watari_watch::pseudonyms::KeyError;
use watari_watch::{alerting, link};

use crate::admin::AskError;
use crate::commands::ctl::unfulfilled::Unfulfilled;
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
    Lab(#[from] supervisor::Error),
    #[error("{0} of the experiments failed: their errors are above")]
    LabRuns(u32),
    #[error(transparent)]
    LabFiles(#[from] catalogue::Error),
    #[error(transparent)]
    LabOutput(#[from] watari_lab::output::Error),
    #[error(transparent)]
    LabScale(#[from] watari_lab::scale::Error),
    #[error(transparent)]
    LabRouter(#[from] watari_lab::router::Error),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error(transparent)]
    MakeList(MakeError),
    #[error(transparent)]
    Report(#[from] WriteError),
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
    #[error("cannot write to {path}: {1}", path = .0.display())]
    ManualPages(PathBuf, io::Error),
}

impl From<MakeError> for Failure {
    fn from(error: MakeError) -> Self {
        match error {
            MakeError::Write(error) => Self::Output(error),
            error => Self::MakeList(error),
        }
    }
}

impl From<MeasureError> for Failure {
    fn from(error: MeasureError) -> Self {
        match error {
            MeasureError::Files(error) => error.into(),
            MeasureError::Start(error) => error.into(),
        }
    }
}

impl From<ChooseError> for Failure {
    fn from(error: ChooseError) -> Self {
        match error {
            ChooseError::Program(error) => Self::Start(error),
            error => Self::Usage(error.to_string()),
        }
    }
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Plan(error) => Self::Usage(error.to_string()),
            SearchError::Rate(error) => Self::Usage(error.to_string()),
            SearchError::Choose(error) => error.into(),
            SearchError::Start(error) => error.into(),
            SearchError::Lost(error) => error.into(),
            SearchError::Output(error) => Self::Output(error),
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
            | Self::LabFiles(
                catalogue::Error::Unknown(_)
                | catalogue::Error::Read { .. }
                | catalogue::Error::Parse { .. }
                | catalogue::Error::Name { .. },
            )
            | Self::Lab(supervisor::Error::Catalogue(_) | supervisor::Error::Plan(_))
            | Self::Tell(_) => 2,
            Self::Fleet(error) if !matches!(error, fleet::StartError::Worker { .. }) => 2,
            _ => 1,
        }
    }
}
