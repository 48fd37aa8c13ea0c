//! Why a notice could not be delivered.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use http::StatusCode;

use super::alerts::Retry;

/// A notice could not be delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error("it took longer than {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("it answered {status}: {body}")]
    Status { status: StatusCode, retry_after: Option<Duration>, body: String },
    #[error("the token file {}: {source}", .path.display())]
    Token { path: PathBuf, source: io::Error },
    #[error("the token in {} has characters that a token must not have", .0.display())]
    BadToken(PathBuf),
    #[error("cannot run {}: {source}", .program.display())]
    Run { program: PathBuf, source: io::Error },
    #[error("it ended with {status}: {output}")]
    Exit { status: ExitStatus, output: String },
    #[error("it ran longer than {} s and was killed: {output}", .limit.as_secs_f64())]
    Killed { limit: Duration, output: String },
    #[error("cannot send: {0}")]
    Send(io::Error),
    #[error("the delivery was aborted: {0}")]
    Lost(tokio::task::JoinError),
}

impl DeliveryError {
    /// A receiver would refuse a refused notice (4xx) again, until it is repaired. Other failures may pass.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Status { status, retry_after, .. } if is_passing(*status) => Retry::Later(*retry_after),
            Self::Status { .. } => Retry::Slowly,
            _ => Retry::Later(None),
        }
    }
}

fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

/// The first part of a text from outside, without control characters, for a log.
pub(super) fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(EXCERPT_LEN_MAX)]);
    text.trim().chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Length of an excerpt, in bytes.
const EXCERPT_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_refused_notice_is_retried_slowly() {
        let retry = |code: u16, retry_after| {
            let status = StatusCode::from_u16(code).unwrap();
            DeliveryError::Status { status, retry_after, body: String::new() }.retry()
        };
        let minute = Some(Duration::from_mins(1));
        assert_eq!(retry(503, minute), Retry::Later(minute));
        assert_eq!(retry(429, minute), Retry::Later(minute));
        assert_eq!(retry(500, None), Retry::Later(None));
        for code in [301, 400, 401, 404, 422] {
            assert_eq!(retry(code, minute), Retry::Slowly, "{code}");
        }
        assert_eq!(DeliveryError::Timeout(Duration::ZERO).retry(), Retry::Later(None));
    }

    #[test]
    fn an_excerpt_is_short_and_one_line() {
        assert_eq!(excerpt(b"  no\x1b[2J\nway\n"), "no [2J way");
        assert_eq!(excerpt(&[b'a'; 5000]).len(), EXCERPT_LEN_MAX);
    }
}
