//! Makes access lists: from networks and URIs in given proportions, or from a server's log (the paper's open point,
//! anma-enma, section 5).
//!
//! Imports: `access_log`.

pub mod from_log;
mod proportions;

use std::io::{self, Write};
use std::str::FromStr;

use http::Uri;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use watari_bench_engine::excerpt::excerpt;
use watari_bench_engine::list::{Ask, Line, LineError};
use watari_bench_engine::round::RoundError;
use watari_bench_engine::source::{AddressRange, SourceError};

use crate::access_log::BadLine;
use proportions::{apportion, deal};

/// The parameters of a list.
///
/// The numbers of lines are exact: networks, URIs and TLS each have their share of the lines to the nearest whole
/// (largest remainder). They are independent of each other: among the lines of one network, each URI and TLS have the
/// same shares again, to within a line or two. Lines are interleaved, so that any part of the list is in proportion as
/// well.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Source networks. Addresses are drawn at random from each. Empty: any source (`-`).
    pub from: Vec<WeightedRange>,
    /// The requests, each with its weight. Their `tls` is ignored.
    pub asks: Vec<Ask>,
    /// The share of lines with TLS.
    pub tls: TlsShare,
    /// Number of lines.
    pub lines: u32,
    /// Determines the drawn addresses.
    pub seed: u64,
}

impl Recipe {
    pub fn lines(&self) -> Result<impl Iterator<Item = Line>, MakeError> {
        let cells = self.from.len().max(1).saturating_mul(self.asks.len());
        if self.lines > LINES_MAX || cells > CELLS_MAX {
            return Err(MakeError::TooMuch);
        }
        let from_weights =
            if self.from.is_empty() { vec![1] } else { self.from.iter().map(|from| from.weight).collect() };
        let ask_weights: Vec<_> = self.asks.iter().map(|ask| ask.weight).collect();
        let share = |weights: &[u32]| apportion(self.lines, weights);
        let from = deal(&share(&from_weights), 1, (0..self.lines).map(|_| 0))?;
        let asks = deal(&share(&ask_weights), from_weights.len(), from.iter().copied())?;
        let both = from.iter().zip(&asks).map(|(from, ask)| from * self.asks.len() as u32 + ask);
        let tls = deal(&share(&self.tls.weights()), cells, both)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        Ok(from.into_iter().zip(asks).zip(tls).map(move |((from, ask), tls)| {
            let source = self
                .from
                .get(from as usize)
                .map(|from| from.range.nth(random.random_range(0..=from.range.last_offset())));
            Line { source, ask: Ask { tls: tls == 1, weight: 1, ..self.asks[ask as usize].clone() } }
        }))
    }
}

/// Writes a list that reads back as the same lines.
pub fn write(lines: impl Iterator<Item = Line>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADING}")?;
    lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// A network and its weight: `10.0.0.0/24=8`. Without `=`, the weight is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedRange {
    pub range: AddressRange,
    /// Its share, relative to the other weights.
    pub weight: u32,
}

impl FromStr for WeightedRange {
    type Err = MakeError;

    fn from_str(text: &str) -> Result<Self, MakeError> {
        let (range, weight) = text.split_once('=').unwrap_or((text, "1"));
        let weight = weight.parse().ok().filter(|weight| *weight > 0);
        Ok(Self { range: range.parse()?, weight: weight.ok_or_else(|| MakeError::Weight { text: excerpt(text) })? })
    }
}

/// The share of requests over TLS: `0.3` or `30%`, to a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsShare {
    millionths: u32,
}

impl TlsShare {
    /// Weights without and with TLS.
    fn weights(self) -> [u32; 2] {
        [MILLION - self.millionths, self.millionths]
    }
}

impl FromStr for TlsShare {
    type Err = MakeError;

    fn from_str(text: &str) -> Result<Self, MakeError> {
        let bad = || MakeError::Share { text: excerpt(text) };
        let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
        let share = number.parse::<f64>().map_err(|_| bad())? / whole;
        if (0.0..=1.0).contains(&share) { Ok(Self { millionths: millionths(share) }) } else { Err(bad()) }
    }
}

/// Parses a request of a list to make: `URI [key=value ...]`, as in a list. The URI is a path, and `weight=` its share.
pub fn parse_ask(text: &str) -> Result<Ask, MakeError> {
    let ask = Ask::parse_without_tls(text, false)?;
    if ask.uri.scheme().is_some() { Err(MakeError::Absolute { uri: ask.uri }) } else { Ok(ask) }
}

/// A list cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// Not a range of addresses.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The weight of a network is not a number from 1.
    #[error("{text:?} has no weight: write a number from 1, as in 10.0.0.0/24=8")]
    Weight { text: String },
    #[error("{text:?} is not a share such as 0.3 or 30%")]
    Share { text: String },
    /// A URI or its options are invalid.
    #[error(transparent)]
    Ask(#[from] LineError),
    /// An absolute URI, whose scheme leaves no choice about TLS.
    #[error("{uri} is not a path: the TLS share decides whether TLS is used")]
    Absolute { uri: Uri },
    /// More lines or cells than a list may have.
    #[error("a list has at most {LINES_MAX} lines, of at most {CELLS_MAX} pairs of a network and a URI")]
    TooMuch,
    /// The weights permit no order.
    #[error("cannot make the list: {0}")]
    Round(#[from] RoundError),
    /// The log cannot be read.
    #[error("cannot read {file}: {error}")]
    Log { file: String, error: io::Error },
    /// No line of the log is usable.
    #[error("{first}; no other line is usable either")]
    NothingOfUse {
        /// The first line, and why it is bad.
        first: BadLine,
    },
    /// The log has no lines.
    #[error("{file} has no lines")]
    Empty { file: String },
    /// The list cannot be written.
    #[error("cannot write the list: {0}")]
    Write(io::Error),
}

#[allow(clippy::cast_sign_loss, reason = "a share is not negative")]
fn millionths(share: f64) -> u32 {
    (share * f64::from(MILLION)).round() as u32
}

const MILLION: u32 = 1_000_000;
/// The maximum number of turns in a round.
const LINES_MAX: u32 = 1 << 24;
const CELLS_MAX: usize = 1 << 20;
/// The first line of the list.
const HEADING: &str = "# source URI TLS";

#[cfg(test)]
mod tests;
