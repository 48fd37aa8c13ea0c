//! The figures that are compared.

use watari_bench_report::summary::{Milliseconds, Summary};

use super::course::Drawing;

#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// Its path in the JSON of a summary.
    pub(super) path: &'static str,
    source: Source,
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    More,
    Less,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    RequestsPerS,
    BytesPerS,
    Failures,
    Latency(Statistic),
    Handshake(Statistic),
    Tr(Statistic),
    Tc(Statistic),
}

#[derive(Clone, Copy, Debug)]
enum Statistic {
    Mean,
    P50,
    P90,
    P99,
    P999,
}

impl Figure {
    pub(super) fn wanted(&self) -> Wanted {
        match self.source {
            Source::RequestsPerS | Source::BytesPerS => Wanted::More,
            _ => Wanted::Less,
        }
    }

    /// The figure of a whole run.
    pub(super) fn of(&self, run: &Summary) -> f64 {
        match self.source {
            Source::RequestsPerS => run.total.requests_per_s,
            Source::BytesPerS => run.total.bytes_per_s,
            Source::Failures => run.total.failures,
            Source::Latency(statistic) => statistic.of(&run.total.latency_ms),
            Source::Handshake(statistic) => statistic.of(&run.total.connections.handshake_ms),
            Source::Tr(statistic) => statistic.of(&run.total.tr_ms),
            Source::Tc(statistic) => statistic.of(&run.total.tc_ms),
        }
    }

    /// The figure of drawn intervals; `None` if the series does not contain it.
    pub(super) fn of_drawing(&self, drawing: &Drawing<'_>) -> Option<f64> {
        match self.source {
            Source::RequestsPerS => Some(drawing.requests_per_s()),
            Source::BytesPerS => Some(drawing.bytes_per_s()),
            Source::Failures => drawing.failures(),
            Source::Latency(Statistic::Mean) => drawing.mean_ms(),
            Source::Latency(statistic) => drawing.quantile_ms(statistic.quantile()),
            Source::Handshake(_) | Source::Tr(_) | Source::Tc(_) => None,
        }
    }

    /// Whether the run has enough measurements for this figure.
    pub(super) fn is_known(&self, run: &Summary) -> bool {
        match self.source {
            Source::RequestsPerS | Source::Failures => run.total.requests > 0,
            Source::BytesPerS => run.total.body_bytes > 0,
            Source::Latency(statistic) => statistic.is_known(&run.total.latency_ms),
            Source::Handshake(statistic) => statistic.is_known(&run.total.connections.handshake_ms),
            Source::Tr(statistic) => statistic.is_known(&run.total.tr_ms),
            Source::Tc(statistic) => statistic.is_known(&run.total.tc_ms),
        }
    }
}

impl Statistic {
    fn of(self, times: &Milliseconds) -> f64 {
        match self {
            Self::Mean => times.mean,
            Self::P50 => times.p50,
            Self::P90 => times.p90,
            Self::P99 => times.p99,
            Self::P999 => times.p999,
        }
    }

    fn quantile(self) -> f64 {
        match self {
            Self::Mean | Self::P50 => 0.5,
            Self::P90 => 0.9,
            Self::P99 => 0.99,
            Self::P999 => 0.999,
        }
    }

    /// A quantile needs ten measurements beyond it.
    fn is_known(self, times: &Milliseconds) -> bool {
        times.count
            >= match self {
                Self::Mean => 1,
                Self::P50 => 20,
                Self::P90 => 100,
                Self::P99 => 1_000,
                Self::P999 => 10_000,
            }
    }
}

pub(super) const FIGURES: [Figure; 13] = [
    Figure { path: "requests_per_s", source: Source::RequestsPerS },
    Figure { path: "bytes_per_s", source: Source::BytesPerS },
    Figure { path: "failures", source: Source::Failures },
    Figure { path: "latency_ms.mean", source: Source::Latency(Statistic::Mean) },
    Figure { path: "latency_ms.p50", source: Source::Latency(Statistic::P50) },
    Figure { path: "latency_ms.p90", source: Source::Latency(Statistic::P90) },
    Figure { path: "latency_ms.p99", source: Source::Latency(Statistic::P99) },
    Figure { path: "latency_ms.p999", source: Source::Latency(Statistic::P999) },
    Figure { path: "connections.handshake_ms.mean", source: Source::Handshake(Statistic::Mean) },
    Figure { path: "tr_ms.mean", source: Source::Tr(Statistic::Mean) },
    Figure { path: "tr_ms.p99", source: Source::Tr(Statistic::P99) },
    Figure { path: "tc_ms.mean", source: Source::Tc(Statistic::Mean) },
    Figure { path: "tc_ms.p99", source: Source::Tc(Statistic::P99) },
];
