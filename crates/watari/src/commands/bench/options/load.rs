//! The amount, rate and duration of a load.

use clap::Args;
use watari_bench_engine::duration::Span;
use watari_bench_engine::plan::{Pace, Stop, Timeouts};
use watari_bench_engine::schedule::{Rate, Schedule, Spacing};

/// The amount, rate and duration of the load
#[derive(Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct Load {
    /// End after this number of requests, or flows
    #[arg(short = 'n', long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Send no request after this time [default: 10s, without --requests]
    #[arg(short = 'd', long, value_name = "DURATION")]
    duration: Option<Span>,
    /// Connections in progress; with --rate, the maximum [default: 10; with --rate 1000]
    #[arg(short = 'c', long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,
    /// Requests, or flows, to send per second, even if earlier ones have not ended: 800, or 100..2000/60s
    #[arg(short = 'r', long)]
    rate: Option<Rate>,
    /// With --rate: random intervals (a Poisson process), which the seed reproduces
    #[arg(long, value_name = "SEED", requires = "rate")]
    poisson: Option<u64>,
    /// Threads
    #[arg(short = 't', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    timeouts: TimeoutOptions,
}

/// Timeouts
#[derive(Args)]
pub(crate) struct TimeoutOptions {
    /// The timeout of a whole response after its request, and of the close by the server
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    timeout: Span,
    /// The timeout of TCP and TLS handshakes; with --rate, also of the wait for a free connection
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    connect_timeout: Span,
}

impl TimeoutOptions {
    pub(crate) fn timeouts(&self) -> Timeouts {
        Timeouts { connect: self.connect_timeout.get(), response: self.timeout.get() }
    }
}

impl Load {
    pub(crate) fn pace(&self) -> Pace {
        let connections = |default| self.connections.map_or(default, |connections| connections as usize);
        match self.rate {
            None => Pace::Closed { connections: connections(10) },
            Some(rate) => {
                let spacing = self.poisson.map_or(Spacing::Even, |seed| Spacing::Poisson { seed });
                Pace::Open { schedule: Schedule::new(rate, spacing), connections_max: connections(1000) }
            }
        }
    }

    pub(crate) fn stop(&self) -> Stop {
        let unbounded = self.requests.is_none() && self.duration.is_none();
        let after = self.duration.map(Span::get);
        Stop { requests: self.requests, after: after.or(unbounded.then_some(DEFAULT_DURATION)) }
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts.timeouts()
    }

    pub(crate) fn threads(&self) -> usize {
        usize::from(self.threads)
    }
}

const DEFAULT_DURATION: std::time::Duration = std::time::Duration::from_secs(10);
