//! `watari bench users`: users who come back.

use clap::{Args, ValueEnum};
use watari_bench_engine::duration::Span;
use watari_bench_engine::plan::{Pace, Plan, Stop};
use watari_bench_engine::shares::Shares;
use watari_bench_engine::tls::Resume;
use watari_bench_engine::users::{Count, Settings};

use super::options::{FleetOptions, Report, Target, TimeoutOptions, Tls, Version};
use crate::failure::Failure;

/// Simulate users that come, wait, and come back with their TLS sessions
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Users {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    coming: Coming,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    version: Version,
    #[command(flatten)]
    fleet: FleetOptions,
    #[command(flatten)]
    report: Report,
}

/// The users' arrivals
#[derive(Args)]
#[command(next_help_heading = "Users")]
struct Coming {
    /// Arrivals per second
    #[arg(short = 'r', long, default_value_t = 800.0)]
    rate: f64,
    /// The requests that count under the rate: all, so that new users come only as often as returning users leave room;
    /// or only those of new users
    #[arg(long, value_enum, default_value = "requests")]
    count: Counted,
    /// The time in which new users come; after it, only waiting users return
    #[arg(short = 'd', long, value_name = "DURATION", default_value = "90s")]
    duration: Span,
    /// Requests of each user, each over a new connection
    #[arg(long, value_name = "N", default_value_t = 3)]
    requests: u32,
    /// Waits of users between their requests; each wait is for an equal share of the users
    #[arg(long, value_name = "DURATIONS", value_delimiter = ',', default_value = "5s,10s,30s,60s")]
    waits: Vec<Span>,
    /// The seed of the order of waits
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The maximum number of connections in progress; a user without a free one is late, and the delay counts
    #[arg(short = 'c', long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Threads
    #[arg(short = 't', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    timeouts: TimeoutOptions,
}

#[derive(Clone, Copy, ValueEnum)]
enum Counted {
    Requests,
    Users,
}

const EXAMPLES: &str = "\
Examples:
  watari bench users https://www.example/50k                  800 requests/s for 90 s, then only those of returning users
  watari bench users https://www.example/ --resume full       the same, without resuming sessions
  watari bench users https://www.example/ --http2             each visit over an HTTP/2 connection, closed after the response
  watari bench users https://www.example/ -r 50 --count users -d 10s --waits 1s,2s --expect tls.resumed>0

Users return even if they got no response, so that the load does not depend on the server. Above the summary there is a
row for each second. Requests whose responses have a status of 400 or more count as failures (see
--ok-status). Exit status: 0 done, 1 no request succeeded, a condition is not met, or a worker was lost, 2 wrong usage.";

impl Users {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let plan = Plan {
            work: self.target.requests()?.into(),
            sources: self.target.sources(),
            pace: self.coming.pace()?,
            stop: Stop::default(),
            protocol: self.version.of_one_request(),
            tls: self.tls.options(Resume::Reuse)?,
            timeouts: self.coming.timeouts.timeouts(),
            threads: usize::from(self.coming.threads),
        };
        let fleet = self.fleet.fleet(&plan)?;
        self.report.run_and_show(plan, &fleet, |summary| format!("{}\n", summary.series))
    }
}

impl Coming {
    fn pace(&self) -> Result<Pace, Failure> {
        let count = match self.count {
            Counted::Requests => Count::Requests,
            Counted::Users => Count::Users,
        };
        let waits = Shares::new(self.waits.iter().map(|wait| wait.get()).collect(), self.seed)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let settings = Settings::new(self.rate, count, self.duration.get(), self.requests, waits)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Pace::Users { settings, connections_max: self.connections as usize })
    }
}
