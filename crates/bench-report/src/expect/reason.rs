//! Why a condition does not parse.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    #[error("no comparison; expected FIGURE, one of < <= = != >= >, and a value, as in p99<50ms")]
    Comparison,
    #[error(
        "{0:?} is not a figure; figures are the numbers of --json, such as p99, latency.max, endings.RESET, failures, requests_per_s"
    )]
    Figure(String),
    #[error("{0:?} is not a time such as 50ms, 0.1s or 800us")]
    Time(String),
    #[error("{0:?} is not a share such as 0.1% or 0.001")]
    Share(String),
    #[error("{0:?} is not a number of 0 or more")]
    Number(String),
}
